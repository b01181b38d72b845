"""The data sets of OpenML and scikit-learn.

MNIST, Fashion-MNIST and CIFAR-10 are downloaded from OpenML by `sklearn.datasets.fetch_openml`, whose cache is a text
file that takes almost a minute to parse. The first load therefore writes a uint8 copy to `<data_home>/minidl_data`.
Later loads read that copy in a fraction of a second, without importing scikit-learn or scipy. The digits of
`load_digits` are part of scikit-learn.
"""

from __future__ import annotations

import contextlib
import errno
import math
import socket
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.datasets.cache import Bunch, DataHome, copies_in, home_of, written
from minidl.utils.optional import needs

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]

# The timeout of a server that does not respond; fetch_openml itself has none.
_NETWORK_TIMEOUT = 20.0  # seconds
# The errors of writing to a folder without permission.
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class DatasetUnavailable(OSError):
    """The data set is neither cached nor reachable; the message lists the remedies.

    It is an OSError.

    Examples
    --------
    >>> from minidl.datasets import DatasetUnavailable, load_digits, load_mnist
    >>> try:  # doctest: +SKIP
    ...     data = load_mnist()
    ... except DatasetUnavailable:
    ...     data = load_digits()
    >>> issubclass(DatasetUnavailable, OSError)
    True
    """


def load_mnist(data_home: DataHome = None) -> Bunch:
    """Loads MNIST: 60,000 + 10,000 handwritten digits, 10 classes.

    The first load reads scikit-learn's OpenML cache, or downloads it (15 MB). It takes up to a minute and saves a
    compact copy; if the folder is not writable, it warns and continues.

    Parameters
    ----------
    data_home : str, os.PathLike or None, default None
        scikit-learn's data folder; None: `$SCIKIT_LEARN_DATA`, or `~/scikit_learn_data`.

    Returns
    -------
    Bunch
        `X_train` and `X_test`, uint8 of shape (n, 1, 28, 28), `y_train` and `y_test`, int64 of shape (n,).

    Raises
    ------
    DatasetUnavailable
        Without both cache and network.

    References
    ----------
    Y. LeCun, C. Cortes, C. Burges, "The MNIST database"; OpenML `mnist_784`, version 1.

    Examples
    --------
    >>> from minidl.datasets import load_mnist
    >>> data = load_mnist()  # doctest: +SKIP
    >>> data.X_train.shape, data.X_test.shape  # doctest: +SKIP
    ((60000, 1, 28, 28), (10000, 1, 28, 28))
    """
    return _load(_MNIST, data_home)


def load_fashion_mnist(data_home: DataHome = None) -> Bunch:
    """Loads Fashion-MNIST: 60,000 + 10,000 pieces of clothing, 10 classes.

    The classes are 0 T-shirt, 1 trouser, 2 pullover, 3 dress, 4 coat, 5 sandal, 6 shirt, 7 sneaker, 8 bag, 9 ankle
    boot. The cache is that of `load_mnist`.

    Parameters
    ----------
    data_home : str, os.PathLike or None, default None
        scikit-learn's data folder; None: `$SCIKIT_LEARN_DATA`, or `~/scikit_learn_data`.

    Returns
    -------
    Bunch
        `X_train` and `X_test`, uint8 of shape (n, 1, 28, 28), `y_train` and `y_test`, int64 of shape (n,).

    Raises
    ------
    DatasetUnavailable
        Without both cache and network.

    References
    ----------
    H. Xiao, K. Rasul, R. Vollgraf, arXiv:1708.07747; OpenML `Fashion-MNIST`, version 1.

    Examples
    --------
    >>> from minidl.datasets import load_fashion_mnist
    >>> data = load_fashion_mnist()  # doctest: +SKIP
    >>> data.X_train.shape, data.X_test.shape  # doctest: +SKIP
    ((60000, 1, 28, 28), (10000, 1, 28, 28))
    """
    return _load(_FASHION_MNIST, data_home)


def load_cifar10(data_home: DataHome = None) -> Bunch:
    """Loads CIFAR-10: 50,000 + 10,000 colour photographs, 10 classes.

    The classes are 0 airplane, 1 automobile, 2 bird, 3 cat, 4 deer, 5 dog, 6 frog, 7 horse, 8 ship, 9 truck. The cache
    is that of `load_mnist`. The first load takes minutes and gigabytes of memory, because scikit-learn parses the
    pixels into float64.

    Parameters
    ----------
    data_home : str, os.PathLike or None, default None
        scikit-learn's data folder; None: `$SCIKIT_LEARN_DATA`, or `~/scikit_learn_data`.

    Returns
    -------
    Bunch
        `X_train` and `X_test`, uint8 of shape (n, 3, 32, 32), `y_train` and `y_test`, int64 of shape (n,).

    Raises
    ------
    DatasetUnavailable
        Without both cache and network.

    References
    ----------
    A. Krizhevsky, "Learning multiple layers of features from tiny images" (2009); OpenML `CIFAR_10`, version 1.

    Examples
    --------
    >>> from minidl.datasets import load_cifar10
    >>> data = load_cifar10()  # doctest: +SKIP
    >>> data.X_train.shape, data.X_test.shape  # doctest: +SKIP
    ((50000, 3, 32, 32), (10000, 3, 32, 32))
    """
    return _load(_CIFAR10, data_home)


def load_digits() -> Bunch:
    """Loads scikit-learn's digits: 1,797 images of 8x8 pixels with values 0 to 16, 10 classes.

    Needs no download. Every fifth example of each class, in the order of the source, is a test example: a fixed
    stratified split, 1,442 for training and 355 for testing.

    Returns
    -------
    Bunch
        `X_train` and `X_test`, uint8 of shape (n, 1, 8, 8), `y_train` and `y_test`, int64 of shape (n,).

    References
    ----------
    E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI repository.

    Examples
    --------
    >>> from minidl.datasets import load_digits
    >>> data = load_digits()
    >>> data.X_train.shape, data.X_test.shape
    ((1442, 1, 8, 8), (355, 1, 8, 8))
    >>> int(data.X_train.max())
    16
    """
    with needs("sklearn", "load_digits"):
        from sklearn.datasets import load_digits as load_embedded
    images, labels = load_embedded(return_X_y=True)
    X = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    is_test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        is_test[np.flatnonzero(y == label)[4::5]] = True
    return Bunch(X_train=X[~is_test], y_train=y[~is_test], X_test=X[is_test], y_test=y[is_test])


@dataclass(frozen=True)
class _Source:
    """A data set on OpenML: rows of flattened CHW pixels, the training examples before the test examples."""

    title: str
    loader: str
    name: str
    image_shape: tuple[int, int, int]
    n_train: int
    n_test: int
    n_classes: int = 10

    @property
    def n(self) -> int:
        return self.n_train + self.n_test


_MNIST = _Source("MNIST", "load_mnist", "mnist_784", (1, 28, 28), 60_000, 10_000)
_FASHION_MNIST = _Source("Fashion-MNIST", "load_fashion_mnist", "Fashion-MNIST", (1, 28, 28), 60_000, 10_000)
_CIFAR10 = _Source("CIFAR-10", "load_cifar10", "CIFAR_10", (3, 32, 32), 50_000, 10_000)


def _load(source: _Source, data_home: DataHome) -> Bunch:
    """Loads `source` from its compact copy, or else from OpenML's cache or server, and saves a copy."""
    home = home_of(data_home)
    copy = copies_in(home) / f"{source.name.lower()}.npz"
    arrays = _read_copy(copy, source)
    if arrays is None:
        arrays = _fetch(source, home)
        _write_copy(copy, source, *arrays)
    X, y = arrays
    n = source.n_train
    return Bunch(X_train=X[:n], y_train=y[:n], X_test=X[n:], y_test=y[n:])


def _read_copy(path: Path, source: _Source) -> Arrays | None:
    """Returns the pixels and labels of a compact copy; None if it is missing or, with a warning, invalid.

    The copy is an uncompressed .npz. Its checksums detect a single damaged pixel, and the name in it distinguishes
    Fashion-MNIST from MNIST.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            name, X, y = str(file["name"]), file["X"], file["y"]
        if name != source.name:
            raise ValueError(f"it holds {name!r}")
        if X.dtype != np.uint8 or X.shape != (source.n, *source.image_shape):
            raise ValueError(f"its pixels are {X.dtype} {X.shape}")
        if y.dtype != np.uint8 or y.shape != (source.n,) or y.max() >= source.n_classes:
            raise ValueError(f"its labels are {y.dtype} {y.shape} up to {y.max(initial=0)}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # zipfile, zlib and NumPy raise various types for a damaged file
        warnings.warn(
            f"{path} is not a valid copy of {source.title} and is created again ({_reason(error)})",
            stacklevel=4,
        )
        return None
    return np.ascontiguousarray(X), y.astype(np.int64)


def _write_copy(path: Path, source: _Source, X: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
    """Writes a compact copy atomically: the path always holds the complete old or new one."""
    try:
        with written(path) as file:
            np.savez(file, name=np.array(source.name), X=X, y=y.astype(np.uint8))
    except OSError as error:
        warnings.warn(
            f"{source.title} is loaded, but no compact copy could be saved in {path.parent} "
            f"({_reason(error)}), so the next load takes as long",
            stacklevel=4,
        )


def _fetch(source: _Source, home: Path) -> Arrays:
    """Returns the pixels and labels from scikit-learn's OpenML cache in `home`, or from OpenML."""
    with needs("sklearn", f"the download of {source.title}"):
        from sklearn.datasets import fetch_openml
    # liac-arff, because the other parser needs pandas; n_retries must be at least 1.
    options = {"as_frame": False, "parser": "liac-arff", "n_retries": 1, "delay": 0.01}
    with _network_timeout(_NETWORK_TIMEOUT), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A network error occurred")
        try:
            try:
                fetched = fetch_openml(source.name, version=1, data_home=home, **options)
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
                fetched = fetch_openml(source.name, version=1, cache=False, **options)
            return _pixels(source, fetched.data), _labels(source, fetched.target)
        except MemoryError:
            raise
        except Exception as error:  # sockets, gzip, JSON and ARFF: one error for all
            raise DatasetUnavailable(
                f"{source.title} is not in {home} and could not be fetched from openml.org "
                f"({_reason(error)}). Call {source.loader}() once with a network connection; or "
                f"set data_home= or the environment variable "
                f"SCIKIT_LEARN_DATA to a folder that has it; or use load_digits(), which needs no download."
            ) from error


def _pixels(source: _Source, data: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Returns float64 pixels (n, c * h * w) as uint8 (n, c, h, w); raises ValueError if a value would change."""
    if data.shape != (source.n, math.prod(source.image_shape)):
        raise ValueError(f"expected {source.n} images of {source.image_shape}, got {data.shape}")
    with np.errstate(invalid="ignore"):  # NaN and values out of range fail the comparison
        X = data.astype(np.uint8, order="C")
    if not np.array_equal(X, data):
        raise ValueError("expected pixels that are integers from 0 to 255")
    return X.reshape(source.n, *source.image_shape)


def _labels(source: _Source, target: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the labels, strings on OpenML, as int64 (n,)."""
    y = target.astype(np.int64)
    if y.shape != (source.n,) or y.min() < 0 or y.max() >= source.n_classes:
        raise ValueError(f"expected {source.n} labels from 0 to {source.n_classes - 1}")
    return y


@contextlib.contextmanager
def _network_timeout(seconds: float) -> Iterator[None]:
    """Sets a timeout for sockets created in the block, unless the program has set a default itself."""
    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds if previous is None else previous)
    try:
        yield
    finally:
        socket.setdefaulttimeout(previous)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
