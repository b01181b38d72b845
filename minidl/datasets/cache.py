"""Bunch, the arrays of a data set, and the folder and the files in which copies of data sets are kept."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

DataHome = str | os.PathLike[str] | None


class Bunch(dict[str, NDArray[Any]]):
    """The arrays of a data set, by key or by attribute: `data["X_train"] is data.X_train`.

    Attributes
    ----------
    X_train, X_test : array of uint8, shape (n, channels, height, width)
        Images of a data set with a fixed split.
    y_train, y_test : array of int64, shape (n,)
        Their labels.
    X : array of uint8, shape (n, channels, height, width)
        Images of a folder.
    y : array of int64, shape (n,), or of uint8, shape (n, height, width)
        Their labels; with masks, those of their pixels.
    class_names : array of str, shape (classes,)
        Names of the classes of a folder, by label; without masks.
    file_names : array of str, shape (n,)
        Paths inside the folder.
    mask_names : array of str, shape (n,)
        Paths of the masks inside their folder.

    Examples
    --------
    >>> from minidl.datasets import load_digits
    >>> data = load_digits()
    >>> list(data), data["y_test"] is data.y_test
    (['X_train', 'y_train', 'X_test', 'y_test'], True)
    """

    X_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    X: NDArray[np.uint8]
    y: NDArray[np.int64] | NDArray[np.uint8]
    class_names: NDArray[np.str_]
    file_names: NDArray[np.str_]
    mask_names: NDArray[np.str_]

    def __getattr__(self, name: str) -> NDArray[Any]:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"Bunch has no {name!r}, only {', '.join(self)}") from None

    def __setattr__(self, name: str, value: NDArray[Any]) -> None:
        self[name] = value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        arrays = (f"{name}: {array.dtype} {array.shape}" for name, array in self.items())
        return f"Bunch({', '.join(arrays)})"


def home_of(data_home: DataHome) -> Path:
    """Returns scikit-learn's data folder, by its rule: the argument, `$SCIKIT_LEARN_DATA` or `~/scikit_learn_data`."""
    if data_home is None:
        data_home = os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data"
    return Path(data_home).expanduser()


def copies_in(home: Path) -> Path:
    """Returns the folder of minidl's copies in a data folder. Not `minidl`: in sys.path, that would be a package."""
    return home / "minidl_data"


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Returns a context that writes a file atomically: the path always holds the complete old or new one.

    Raises OSError if the file cannot be written, also if its folder cannot be made.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
