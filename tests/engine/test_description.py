"""model.metadata and model.classes: what is set is read back, from copies and files too, and nothing else is taken."""

import copy
import hashlib
import itertools
import json
import pickle
import types

import numpy as np
import pytest
from odd_arrays import KINDS
from safetensors import safe_open

from minidl import FileError, Sequential, Trainer
from minidl.engine.description import MAX_DEPTH, MAX_TEXT
from minidl.layers import Conv2D, Dense, Flatten, Outputs, ReLU
from minidl.optimizers import SGD
from minidl.saving import safetensors_file

METADATA = {
    "z first": 'é \U0001f600 \u2028 \\ " */ ??/\n',
    "a": [1, -0.0, 1e-320, 2**70, True, None, [], {}, [[{"": [0.1]}]]],
    "range": [0, 255],
}
CLASSES = ["cat", "dog */ ??/\n\\", "é\U0001f600"]


def make(outputs=3, **options):
    return Sequential([Dense(4), ReLU(), Dense(outputs)], input_shape=(2,), **options)


@pytest.fixture
def model():
    model = make()
    model.metadata, model.classes = METADATA, CLASSES
    return model


def same(model, classes=tuple(CLASSES)):
    assert model.metadata == METADATA
    assert list(model.metadata) == list(METADATA)  # in this order
    assert [type(part) for part in model.metadata["a"]] == [type(part) for part in METADATA["a"]]
    assert model.classes == classes


def test_a_new_model_has_none():
    assert make().metadata == {}
    assert make().classes is None


def test_it_is_read_back_from_a_file(tmp_path):
    make().save(tmp_path / "a", metadata=METADATA, classes=CLASSES)
    loaded = Sequential.load(tmp_path / "a")
    same(loaded)
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with safe_open(tmp_path / "a", "np") as file:  # another program's reader
        assert json.loads(file.metadata()["about"]) == {"classes": CLASSES, "metadata": METADATA}


def test_save_leaves_the_model_as_it_is(tmp_path, model):
    model.save(tmp_path / "a", metadata={}, classes=[1, 2, 3])
    same(model)
    loaded = Sequential.load(tmp_path / "a")
    assert (loaded.metadata, loaded.classes) == ({}, (1, 2, 3))
    model.save(tmp_path / "b", metadata=loaded.metadata | {"x": 1})
    assert Sequential.load(tmp_path / "b").classes == tuple(CLASSES)


def test_files_without_it_keep_their_bytes(tmp_path):
    model = make()
    model.load_state_dict({name: np.zeros_like(value) for name, value in model.state_dict().items()})
    model.save(tmp_path / "a", metadata={}, classes=None)
    written = hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    assert (
        written == "61e254d53c8f705822822d1ad0b8753335d6416c0140f6fc716788ed7eee573a"
    )  # by the version before metadata


def test_copies_keep_it(model):
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model[:], model[1:], model[-1:], model[::2]):
        same(made)
    for made in (model[:-1], model[:1], model[1:2]):
        same(made, None)


def test_checkpoints_keep_it(tmp_path, model):
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    trainer.train_batch(np.ones((3, 2)), [0, 1, 2])
    trainer.save_checkpoint(tmp_path / "c")
    same(Trainer.resume(tmp_path / "c").model)
    same(pickle.loads(pickle.dumps(trainer)).model)
    other = make()
    other.metadata, other.classes = {"other": 1}, [1, 2, 3]
    same(Trainer.resume(tmp_path / "c", other).model)
    model.metadata, model.classes = {}, None
    trainer.save_checkpoint(tmp_path / "c")
    same(Trainer.resume(tmp_path / "c", other).model)  # the checkpoint says nothing


def test_the_models_of_each_size_have_it():
    model = Sequential([Conv2D(2, 3, padding=1)], input_shape=(1, None, None))
    model.classes, model.metadata = ["sky", "road"], {"a": 1}
    assert (model.at((1, 5, 5)).classes, model.at((1, 5, 5)).metadata) == (("sky", "road"), {"a": 1})
    model.classes = None
    assert model.at((1, 5, 5)).classes is None
    model.classes = ["sky", "road"]
    assert copy.deepcopy(model).classes == ("sky", "road")


def test_metadata_cannot_be_changed_in_place(model):
    with pytest.raises(TypeError):
        model.metadata["x"] = 1
    given = {"a": [1]}
    model.metadata = given
    given["a"].append(2)
    model.metadata["a"].append(3)
    assert model.metadata == {"a": [1]}


def test_metadata_may_be_set_before_the_build(tmp_path):
    model = Sequential([Dense(2)])
    model.metadata = types.MappingProxyType({"a": 1})
    with pytest.raises(ValueError, match="the model is not built yet"):
        model.classes = ["a", "b"]
    assert copy.deepcopy(model).metadata == {"a": 1}
    model.build((3,))
    assert model.metadata == {"a": 1}


@pytest.mark.parametrize(
    ("given", "classes"),
    [
        (("a", "b", "c"), ("a", "b", "c")),
        (np.array(["a", "b", "c"]), ("a", "b", "c")),
        (np.arange(3), (0, 1, 2)),
        ([np.int64(2), 1, -3], (2, 1, -3)),
        (np.array(["a", "b", "c"], object), ("a", "b", "c")),
        ({"a": 1, "b": 2, "c": 3}, ("a", "b", "c")),
    ],
    ids=str,
)
def test_classes_of_numpy_become_pythons(tmp_path, given, classes):
    make().save(tmp_path / "a", classes=given)
    loaded = Sequential.load(tmp_path / "a").classes
    assert loaded == classes
    assert {type(name) for name in loaded} == {type(classes[0])}


@pytest.mark.parametrize("dtype", [int, str])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "None"])
def test_odd_arrays_are_refused_or_their_values(model, kind, dtype):
    try:
        given = KINDS[kind](np.array([7, 5, 9]).astype(dtype))
    except (TypeError, ValueError):
        pytest.skip("no such array")
    try:
        model.classes = given
    except (TypeError, ValueError) as error:
        assert str(error).startswith("classes: expected")
        same(model)
    else:
        assert model.classes == tuple(np.asarray(given).tolist())
        assert {type(name) for name in model.classes} <= {int, str}


def test_an_endless_iterator_is_refused(model):
    with pytest.raises(ValueError, match=r"classes: expected 3 names, for outputs \(3,\), got at least 4"):
        model.classes = itertools.count()
    same(model)


def test_a_single_score_has_two_classes():
    model = make(1)
    model.classes = [False + 0, 1]
    assert model.classes == (0, 1)
    with pytest.raises(ValueError, match=r"classes: expected 2 names, for outputs \(1,\), got 1"):
        model.classes = ["a"]


ITSELF = []
ITSELF.append(ITSELF)
WIDE = [[]]
for _ in range(40):
    WIDE = [WIDE, WIDE]
DEEP = []
for _ in range(MAX_DEPTH):
    DEEP = [DEEP]

REFUSED = {
    "no dict": ([], TypeError, r"metadata: expected a dict of JSON's values, got \[\]"),
    "no key of a string": ({1: 2}, TypeError, "metadata: expected strings as keys, got 1"),
    "a tuple as a key": (
        {"a": [{(1, 2): 3}]},
        TypeError,
        r"metadata\['a'\]\[0\]: expected strings as keys, got \(1, 2\)",
    ),
    "a tuple": ({"a": (1, 2)}, TypeError, r"metadata\['a'\]: expected str, .* got tuple \(1, 2\); write list\(...\)"),
    "bytes": ({"a": b"x"}, TypeError, r"got bytes b'x'; write .decode\(\) or .hex\(\)"),
    "a NumPy scalar": ({"a": np.float32(1)}, TypeError, r"got float32 .*; write .item\(\)"),
    "a float of NumPy": ({"a": np.float64(1)}, TypeError, r"got float64 .*; write .item\(\)"),
    "a string of NumPy": ({"a": np.str_("x")}, TypeError, r"got str_ .*; write .item\(\)"),
    "an array": ({"a": np.arange(3)}, TypeError, r"got ndarray .*; write .tolist\(\)"),
    "a set": ({"a": {1}}, TypeError, r"got set \{1\}; write sorted\(...\)"),
    "an object": ({"a": object()}, TypeError, "got object <object"),
    "NaN": (
        {"a": [0, float("nan")]},
        ValueError,
        r"metadata\['a'\]\[1\]: expected a finite number, .*, got nan; write None",
    ),
    "infinity": ({"a": float("-inf")}, ValueError, "got -inf"),
    "a surrogate": ({"a": "\ud800"}, ValueError, r"metadata\['a'\]: expected strings that UTF-8 can hold"),
    "a surrogate as a key": ({"\ud800": 1}, ValueError, "metadata: expected strings that UTF-8 can hold"),
    "too many digits": ({"a": 10**5000}, ValueError, "expected an integer of at most 400 digits"),
    "a list in itself": ({"a": ITSELF}, ValueError, "nested at most 50 deep, got more"),
    "a list twice, 40 times": ({"a": WIDE}, ValueError, "expected at most 131072 values"),
    "too deep": ({"a": DEEP}, ValueError, "nested at most 50 deep"),
    "too long": ({"a": "x" * MAX_TEXT}, ValueError, "metadata: expected at most 1048576 characters of JSON"),
    "too many lists": ({"a": [[] for _ in range(2**16)]}, ValueError, "metadata: expected JSON that takes less"),
}


@pytest.mark.parametrize(("given", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_metadata_that_json_does_not_have_is_refused(tmp_path, model, given, error, message):
    with pytest.raises(error, match=message):
        model.metadata = given
    with pytest.raises(error, match=message):
        model.save(tmp_path / "a", metadata=given)
    same(model)
    assert not (tmp_path / "a").exists()


def test_the_limits_can_be_reached(tmp_path):
    deepest = {"a": DEEP[0]}
    make().save(tmp_path / "a", metadata=deepest)
    assert Sequential.load(tmp_path / "a").metadata == deepest
    longest = {
        "a": "x" * (MAX_TEXT - 8),
    }
    make().save(tmp_path / "a", metadata=longest, classes=["a" * 9, "b", "c"])
    assert Sequential.load(tmp_path / "a").metadata == longest


CLASSES_REFUSED = {
    "a string": ("abc", TypeError, "classes: expected a list of strings or ints, got 'abc'"),
    "a number": (3, TypeError, "classes: expected a list of strings or ints, got 3"),
    "both kinds": (["a", "b", 1], TypeError, "classes: expected a list of strings or ints"),
    "floats": ([1.0, 2.0, 3.0], TypeError, "classes: expected a list of strings or ints"),
    "bools": ([True, False, True], TypeError, "classes: expected a list of strings or ints"),
    "bytes": ([b"a", b"b", b"c"], TypeError, "classes: expected a list of strings or ints"),
    "two axes": (np.zeros((3, 1), int), TypeError, "classes: expected a list of strings or ints"),
    "too few": (["a", "b"], ValueError, r"classes: expected 3 names, for outputs \(3,\), got 2"),
    "none": ([], ValueError, "expected 3 names"),
    "equal ones": (["a", "b", "a"], ValueError, "classes: expected names that differ, got 'a' twice"),
    "a null": (["a", "b\0", "c"], ValueError, "classes: expected strings without null characters, got"),
    "a surrogate": (["a", "\ud800", "c"], ValueError, "classes: expected strings that UTF-8 can hold"),
    "too many digits": ([1, 2, 10**5000], ValueError, "classes: expected integers of at most 400 digits"),
    "too long": (["a", "b", "x" * MAX_TEXT], ValueError, "classes: expected at most 1048576 characters"),
}


@pytest.mark.parametrize(("given", "error", "message"), CLASSES_REFUSED.values(), ids=CLASSES_REFUSED)
def test_other_classes_are_refused(tmp_path, model, given, error, message):
    with pytest.raises(error, match=message):
        model.classes = given
    with pytest.raises(error, match=message):
        model.save(tmp_path / "a", classes=given)
    same(model)
    assert not (tmp_path / "a").exists()


def test_several_outputs_have_no_classes():
    model = Sequential([Outputs(policy=[Dense(3)], value=[Dense(1)])], input_shape=(2,))
    with pytest.raises(
        ValueError, match=r"classes: expected a model of one output, got policy, value; write model\['p"
    ):
        model.classes = ["a", "b", "c"]
    model.metadata = METADATA
    same(model["policy"], None)


def test_pixels_have_classes():
    model = Sequential([Conv2D(3, 3, padding=1)], input_shape=(1, 4, 4))
    model.classes = CLASSES
    assert model.classes == tuple(CLASSES)
    assert Sequential([model, Flatten()], input_shape=(1, 4, 4)).classes is None


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"classes": ["a", "b"]}, "classes: expected 3 names"),
        ({"classes": ["a", "b", 1]}, "classes: expected a list of strings or ints"),
        ({"classes": "abc"}, "classes: expected a list of strings"),
        ({"metadata": [1]}, "metadata: expected a dict"),
        ({"metadata": {}}, "about: expected some of classes, metadata"),
        (
            {"metadata": {"a": 1}, "classes": ["a", "b", "c"]},
            "about: expected some of classes, metadata, in this order",
        ),
        ({"other": 1}, "about: expected some of"),
    ],
    ids=str,
)
def test_a_file_that_save_cannot_have_written_is_refused(tmp_path, monkeypatch, about, message):
    model = make()
    monkeypatch.setattr(safetensors_file, "_load_config", lambda metadata: None)  # checks nothing when it writes
    safetensors_file.write(tmp_path / "a", "model", model.get_config(), model.state_dict(), about)
    monkeypatch.undo()
    with pytest.raises(FileError, match=f"a: {message}"):
        Sequential.load(tmp_path / "a")
