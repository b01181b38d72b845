"""minidl.datasets, on small data sets in the layout of scikit-learn's OpenML cache."""

import errno
import gzip
import hashlib
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets

from minidl import datasets
from minidl.datasets import Bunch, DatasetUnavailable, load_digits, openml

GREY = openml._Source("Grey", "load_grey", "Grey_6", (1, 2, 3), n_train=7, n_test=4)
COLOUR = openml._Source("Colour", "load_colour", "Colour_24", (3, 2, 4), n_train=5, n_test=3)
NAMES = ["X_train", "y_train", "X_test", "y_test"]
MNIST_COPY = (
    Path(os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data").expanduser() / "minidl_data" / "mnist_784.npz"
)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Makes every host name look-up fail, as on a machine without a network."""

    def fail(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)


def rows_of(source):
    """Returns varied pixels (n, c * h * w) and labels (n,) of `source`, always the same."""
    rng = np.random.default_rng(0)
    pixels = rng.permutation(np.resize(np.arange(256), (source.n, np.prod(source.image_shape))))
    return pixels.astype(np.uint8), rng.permutation(np.resize(np.arange(10), source.n))


def assert_is(bunch, source):
    """Asserts that `bunch` holds the rows of `rows_of(source)`, split and shaped as documented."""
    X, y = rows_of(source)
    X = X.reshape(-1, *source.image_shape)
    assert list(bunch) == NAMES
    np.testing.assert_array_equal(bunch.X_train, X[: source.n_train])
    np.testing.assert_array_equal(bunch.y_train, y[: source.n_train])
    np.testing.assert_array_equal(bunch.X_test, X[source.n_train :])
    np.testing.assert_array_equal(bunch.y_test, y[source.n_train :])
    assert bunch.X_train.dtype == bunch.X_test.dtype == np.uint8
    assert bunch.y_train.dtype == bunch.y_test.dtype == np.int64
    assert bunch.X_train.flags.c_contiguous


def write_openml_cache(home, source, quote="'"):
    """Writes `rows_of(source)` as the files that fetch_openml keeps below `home`."""
    X, y = rows_of(source)
    columns = [f"pixel{i + 1}" for i in range(X.shape[1])]
    classes = ",".join(f"{quote}{label}{quote}" for label in range(10))
    lines = [
        f"@RELATION {source.name}",
        *(f"@ATTRIBUTE {column} real" for column in columns),
        f"@ATTRIBUTE class {{{classes}}}",
        "@DATA",
        *(f"{','.join(map(str, X[i]))},{quote}{y[i]}{quote}" for i in range(source.n)),
    ]
    arff = "\n".join(lines).encode()
    features = [
        {
            "index": str(i),
            "name": column,
            "data_type": "nominal" if column == "class" else "numeric",
            "is_target": str(column == "class").lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for i, column in enumerate([*columns, "class"])
    ]
    download = f"data/v1/download/42/{source.name}.arff"
    description = {
        "id": "7",
        "name": source.name,
        "version": "1",
        "description": "synthetic",
        "format": "ARFF",
        "status": "active",
        "url": f"https://www.openml.org/{download}",
        "file_id": "42",
        "md5_checksum": hashlib.md5(arff).hexdigest(),
    }
    quality = [{"name": "NumberOfInstances", "value": f"{source.n}.0"}]
    api = "api/v1/json/data"
    listing = f"{api}/list/data_name/{source.name.lower()}/limit/2/data_version/1"
    files = {
        listing: {"data": {"dataset": [{"did": 7}]}},
        f"{api}/7": {"data_set_description": description},
        f"{api}/features/7": {"data_features": {"feature": features}},
        f"{api}/qualities/7": {"data_qualities": {"quality": quality}},
        download: arff,
        "data/v1/download/42": arff,  # where scikit-learn before 1.7 looks for it
    }
    for name, content in files.items():
        path = home / "openml" / "openml.org" / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        path.write_bytes(gzip.compress(raw))


def replace_fetch(monkeypatch, source=GREY, **changes):
    """Makes fetch_openml return the rows of `source`, with `changes`; returns its calls."""
    X, y = rows_of(source)
    fetched = {"data": X.astype(np.float64), "target": y.astype(str).astype(object)} | changes
    calls = []

    def fetch(name, **options):
        calls.append((name, options))
        return SimpleNamespace(**fetched)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return calls


def copy_in(home, source=GREY):
    return home / "minidl_data" / f"{source.name.lower()}.npz"


def load_silently(source, home):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return openml._load(source, home)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


class TestBunch:
    def test_key_and_attribute_are_the_same_array(self):
        X = np.zeros((2, 1, 4, 4), np.uint8)
        bunch = Bunch(X_train=X)
        assert bunch.X_train is bunch["X_train"] is X
        bunch.y_train = y = np.zeros(2, np.int64)
        assert bunch["y_train"] is y
        assert {"X_train", "y_train"} <= set(dir(bunch))

    def test_unknown_attribute_names_the_known_ones(self):
        with pytest.raises(AttributeError, match="'x_train', only X_train"):
            Bunch(X_train=np.zeros(1)).x_train  # noqa: B018

    def test_repr_is_short(self):
        assert repr(Bunch(y=np.zeros(3, np.int64))) == "Bunch(y: int64 (3,))"

    def test_pickles(self):
        again = pickle.loads(pickle.dumps(Bunch(y=np.arange(3))))
        assert isinstance(again, Bunch)
        np.testing.assert_array_equal(again.y, np.arange(3))


class TestDigits:
    def test_shapes_dtypes_and_values(self):
        digits = load_digits()
        assert list(digits) == NAMES
        assert (digits.X_train.shape, digits.X_test.shape) == ((1442, 1, 8, 8), (355, 1, 8, 8))
        assert (digits.y_train.shape, digits.y_test.shape) == ((1442,), (355,))
        for X, y in ((digits.X_train, digits.y_train), (digits.X_test, digits.y_test)):
            assert (X.dtype, X.min(), X.max(), X.flags.c_contiguous) == (np.uint8, 0, 16, True)
            assert (y.dtype, y.min(), y.max()) == (np.int64, 0, 9)

    def test_split_is_stratified_and_complete(self):
        digits = load_digits()
        shares = np.bincount(digits.y_test) / np.bincount(digits.y_train)
        assert np.all(np.abs(shares - 0.25) < 0.01)
        images, labels = sklearn.datasets.load_digits(return_X_y=True)
        ours = np.concatenate([digits.X_train, digits.X_test]).reshape(-1, 64)
        ours = np.column_stack([ours, np.concatenate([digits.y_train, digits.y_test])])
        theirs = np.column_stack([images, labels])
        np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])

    def test_split_is_deterministic(self):
        digits = load_digits()
        digest = hashlib.sha256(digits.X_test.tobytes() + digits.y_test.tobytes()).hexdigest()
        assert digest == "6150ffb38b98d9ee00309dd12030a2c3061964989f8c0f6bb5f1c161d7065e3c"


class TestOpenML:
    @pytest.mark.parametrize("source", [GREY, COLOUR], ids=lambda source: source.title)
    @pytest.mark.parametrize("quote", ["", "'"], ids=["plain", "quoted"])
    def test_first_and_later_loads_use_the_cache(self, tmp_path, source, quote):
        write_openml_cache(tmp_path, source, quote)
        assert_is(load_silently(source, tmp_path), source)
        assert list((tmp_path / "minidl_data").iterdir()) == [copy_in(tmp_path, source)]
        (tmp_path / "openml").rename(tmp_path / "gone")
        assert_is(load_silently(source, tmp_path), source)

    @pytest.mark.parametrize(
        ("load", "name", "image_shape", "n_train"),
        [
            (datasets.load_mnist, "mnist_784", (1, 28, 28), 60_000),
            (datasets.load_fashion_mnist, "Fashion-MNIST", (1, 28, 28), 60_000),
            (datasets.load_cifar10, "CIFAR_10", (3, 32, 32), 50_000),
        ],
    )
    def test_public_loaders(self, monkeypatch, tmp_path, load, name, image_shape, n_train):
        n = n_train + 10_000
        X = np.repeat(np.arange(n)[:, None].astype(np.uint8), np.prod(image_shape), axis=1)
        calls = replace_fetch(monkeypatch, data=X, target=(np.arange(n) % 10).astype(str))
        monkeypatch.setattr(openml, "_write_copy", lambda *args: None)
        bunch = load(data_home=tmp_path)
        assert bunch.X_train.shape == (n_train, *image_shape)
        assert bunch.X_test.shape == (10_000, *image_shape)
        assert bunch.X_test[0, 0, 0, 0] == n_train % 256
        assert bunch.y_test[0] == 0
        [(called, options)] = calls
        assert called == name
        assert options["version"] == 1
        assert options["parser"] == "liac-arff"
        assert options["as_frame"] is False

    def test_later_loads_import_neither_sklearn_nor_scipy(self, monkeypatch, tmp_path):
        replace_fetch(monkeypatch)
        openml._load(GREY, tmp_path)
        program = (
            "import sys; from minidl.datasets import openml\n"
            "source = openml._Source('Grey', 'load_grey', 'Grey_6', (1, 2, 3), 7, 4)\n"
            "openml._load(source, sys.argv[1])\n"
            "assert not {'sklearn', 'scipy'} & set(sys.modules)"
        )
        root = Path(openml.__file__).parents[1]
        subprocess.run([sys.executable, "-c", program, tmp_path], check=True, cwd=root, timeout=300)

    def test_data_home(self, monkeypatch, tmp_path):
        calls = replace_fetch(monkeypatch)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("SCIKIT_LEARN_DATA", "~/elsewhere")
        openml._load(GREY, None)
        openml._load(GREY, str(tmp_path / "given"))
        monkeypatch.delenv("SCIKIT_LEARN_DATA")
        openml._load(GREY, None)
        homes = [tmp_path / name for name in ("elsewhere", "given", "scikit_learn_data")]
        assert [options["data_home"] for _, options in calls] == homes
        assert all(copy_in(home).is_file() for home in homes)


class TestUnavailable:
    def test_without_cache_and_network_it_fails_at_once(self, tmp_path, monkeypatch):
        waits = []
        monkeypatch.setattr(time, "sleep", waits.append)
        with pytest.raises(DatasetUnavailable) as caught, warnings.catch_warnings():
            warnings.simplefilter("error")
            datasets.load_mnist(tmp_path / "home")
        assert sum(waits) < 0.1  # it does not keep retrying
        assert isinstance(caught.value, OSError)
        for part in (f"MNIST is not in {tmp_path}", "load_mnist()", "data_home=", "load_digits()"):
            assert part in str(caught.value)
        assert not (tmp_path / "home" / "minidl_data").exists()
        assert socket.getdefaulttimeout() is None

    def test_an_unresponsive_server_times_out(self, monkeypatch, tmp_path):
        seen = []

        def fetch(*args, **options):
            seen.append(socket.getdefaulttimeout())
            raise TimeoutError("timed out")

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        with pytest.raises(DatasetUnavailable, match="timed out"):
            openml._load(GREY, tmp_path)
        assert seen[0] is not None

    @pytest.mark.parametrize(
        "changes",
        [
            {"data": np.zeros((GREY.n - 1, 6))},
            {"data": np.zeros((GREY.n, 7))},
            {"data": np.full((GREY.n, 6), 0.5)},
            {"data": np.full((GREY.n, 6), 256.0)},
            {"data": np.full((GREY.n, 6), -1.0)},
            {"data": np.full((GREY.n, 6), np.nan)},
            {"target": np.array(["1"] * (GREY.n - 1))},
            {"target": np.array(["10"] * GREY.n)},
            {"target": np.array(["-1"] * GREY.n)},
            {"target": np.array(["cat"] * GREY.n)},
            {"target": None},
        ],
    )
    def test_a_wrong_source_is_refused_and_not_stored(self, monkeypatch, tmp_path, changes):
        replace_fetch(monkeypatch, **changes)
        with pytest.raises(DatasetUnavailable, match="Grey"):
            openml._load(GREY, tmp_path)
        assert not (tmp_path / "minidl_data").exists()


class TestCopy:
    X = rows_of(GREY)[0].reshape(GREY.n, *GREY.image_shape)
    y = rows_of(GREY)[1].astype(np.uint8)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"no archive",
            npz(name=np.array("Colour_24"), X=X, y=y),
            npz(name=np.array("Grey_6"), X=X),
            npz(name=np.array("Grey_6"), X=X[1:], y=y),
            npz(name=np.array("Grey_6"), X=X.reshape(GREY.n, 6), y=y),
            npz(name=np.array("Grey_6"), X=X.astype(np.float32), y=y),
            npz(name=np.array("Grey_6"), X=X, y=y[1:]),
            npz(name=np.array("Grey_6"), X=X, y=y.astype(np.int64)),
            npz(name=np.array("Grey_6"), X=X, y=y + np.uint8(1)),
            npz(name=np.array("Grey_6"), X=X.astype(object), y=y),
        ],
        ids=[
            "empty", "garbage", "foreign", "member", "count", "rank", "dtype",
            "labels", "label-dtype", "label-range", "pickle",
        ],
    )  # fmt: skip
    def test_a_damaged_copy_is_replaced(self, monkeypatch, tmp_path, content):
        replace_fetch(monkeypatch)
        copy_in(tmp_path).parent.mkdir()
        copy_in(tmp_path).write_bytes(content)
        with pytest.warns(UserWarning, match="not a valid copy of Grey"):
            assert_is(openml._load(GREY, tmp_path), GREY)
        assert_is(load_silently(GREY, tmp_path), GREY)

    def test_damaged_data_is_never_loaded(self, monkeypatch, tmp_path):
        """Flips one bit of any byte, or truncates the file anywhere: the arrays are correct all the same."""
        replace_fetch(monkeypatch)
        monkeypatch.setattr(openml, "_write_copy", lambda *args: None)
        copy_in(tmp_path).parent.mkdir()
        sound = npz(name=np.array("Grey_6"), X=self.X, y=self.y)
        rebuilt = 0
        for i in range(len(sound)):
            flipped = sound[:i] + bytes([sound[i] ^ 1 << i % 8]) + sound[i + 1 :]
            for content in (flipped, sound[:i]) if i % 8 == 0 else (flipped,):
                copy_in(tmp_path).write_bytes(content)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    assert_is(openml._load(GREY, tmp_path), GREY)
                rebuilt += bool(caught)
        assert rebuilt > len(sound) / 2

    def test_a_damaged_copy_without_network_is_an_error(self, tmp_path):
        copy_in(tmp_path).parent.mkdir()
        copy_in(tmp_path).write_bytes(b"no archive")
        with pytest.warns(UserWarning), pytest.raises(DatasetUnavailable):
            openml._load(GREY, tmp_path)

    def test_a_folder_that_cannot_be_made_is_an_error(self, monkeypatch, tmp_path):
        replace_fetch(monkeypatch)
        (tmp_path / "minidl_data").write_text("in the way")
        with pytest.warns(UserWarning, match="no compact copy could be saved"):
            assert_is(openml._load(GREY, tmp_path), GREY)

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
    def test_an_interrupted_write_leaves_nothing(self, monkeypatch, tmp_path, call, error):
        replace_fetch(monkeypatch)
        copy_in(tmp_path).parent.mkdir()
        copy_in(tmp_path).write_bytes(b"old")

        def fail(*args):
            raise error

        monkeypatch.setattr(os, call, fail)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if isinstance(error, OSError):
                assert_is(openml._load(GREY, tmp_path), GREY)
            else:
                with pytest.raises(KeyboardInterrupt):
                    openml._load(GREY, tmp_path)
        assert list((tmp_path / "minidl_data").iterdir()) == [copy_in(tmp_path)]
        assert copy_in(tmp_path).read_bytes() == b"old"

    def test_read_only_data_home(self, monkeypatch, tmp_path):
        X, y = rows_of(GREY)
        calls = []

        def fetch(name, cache=True, **options):
            calls.append(cache)
            if cache:
                raise OSError(errno.EROFS, "Read-only file system")
            return SimpleNamespace(data=X.astype(float), target=y.astype(str))

        def mkdir(self, *args, **kwargs):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
        monkeypatch.setattr(Path, "mkdir", mkdir)
        with pytest.warns(UserWarning, match="no compact copy could be saved"):
            assert_is(openml._load(GREY, tmp_path), GREY)
        assert calls == [True, False]


@pytest.mark.skipif(not MNIST_COPY.is_file(), reason="no compact copy of MNIST in the data folder")
def test_mnist_itself(monkeypatch):
    monkeypatch.delattr(sklearn.datasets, "fetch_openml")  # slow
    mnist = datasets.load_mnist()
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.y_train).tolist() == counts
    assert mnist.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.y_test[:5].tolist() == [7, 2, 1, 0, 4]
    assert round(mnist.X_train.mean() / 255, 4) == 0.1307
