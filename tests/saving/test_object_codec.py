"""ObjectCodec: objects as JSON and back, by registered names."""

import json
import pathlib

import numpy as np
import pytest

from minidl import Layer
from minidl.initializers import damped_he_uniform, zeros
from minidl.layers import Dense, ReLU
from minidl.saving.object_codec import MAX_OBJECTS, ObjectCodec, check_names, checked_custom, decode


def built_in_function():
    """A function that stands for a built-in one."""


FUNCTIONS = {"damped_he_uniform": damped_he_uniform, "zeros": zeros, "ours_function": built_in_function}
BUILT_IN = {"Dense": Dense, "ReLU": ReLU, **FUNCTIONS}


class CustomLayer(Layer):
    """A custom layer with arguments of any kind."""

    def __init__(self, what=None):
        self.what = what


class Holder:
    """Not a layer, but has constructor arguments."""

    def __init__(self, inner, *, size=3):
        self.inner, self.size = inner, size


def custom_loss(scores, y):
    """A custom loss function."""


CUSTOM = {"CustomLayer": CustomLayer, "Holder": Holder, "custom_loss": custom_loss}


def round_trip(value):
    return decode(json.loads(json.dumps(ObjectCodec(BUILT_IN).encode(value, "value"))), BUILT_IN, CUSTOM)


@pytest.mark.parametrize(
    "layer",
    [
        *(Dense(3), ReLU(), CustomLayer(), CustomLayer((1, 2)), CustomLayer([Dense(2), (CustomLayer("x"),)])),
        *(CustomLayer({"a": Dense(1)}), CustomLayer(np.float32(0.1))),
    ],
    ids=repr,
)
def test_layers(layer):
    assert repr(round_trip(layer)) == repr(layer)


def test_objects_and_functions():
    assert round_trip(custom_loss) is custom_loss and round_trip(built_in_function) is built_in_function
    holder = round_trip(Holder(custom_loss, size=(4,)))
    assert type(holder) is Holder and holder.inner is custom_loss and holder.size == (4,)


def test_a_custom_class_never_loads_as_a_built_in_one_or_vice_versa():
    custom_dense = type("Dense", (CustomLayer,), {"__init__": CustomLayer.__init__})
    config = ObjectCodec(BUILT_IN).encode([custom_dense(), Dense(2)], "value")
    with pytest.raises(ValueError, match=r"custom_objects={'Dense': Dense}"):
        decode(config, BUILT_IN, {})
    first, second = decode(config, BUILT_IN, {"Dense": custom_dense})
    assert (type(first), type(second)) == (custom_dense, Dense)


def test_two_classes_of_one_name_are_refused():
    other = type("CustomLayer", (CustomLayer,), {"__init__": CustomLayer.__init__})
    codec = ObjectCodec({})
    codec.encode(CustomLayer(), "layer 0")
    codec.encode(CustomLayer(), "layer 1")
    with pytest.raises(ValueError, match="layer 2: cannot be saved: expected one 'CustomLayer', got two"):
        codec.encode(other(), "layer 2")


class Forgetful(Layer):
    """Does not store its argument."""

    def __init__(self, size):
        pass


class PositionalArguments:
    """Takes positional arguments without names."""

    def __init__(self, size=1, /):
        pass


class KeywordArguments:
    """Does not store its arguments."""

    def __init__(self, **options):
        pass


class StarArguments:
    """Does not store its arguments."""

    def __init__(self, *sizes):
        pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3), "got array"),
        (object, "got the class object"),
        (Forgetful(3), "takes 'size' and must store it in self.size"),
        (StarArguments(), "takes 'sizes' and must store it in self.sizes"),
        (PositionalArguments(), "positional-only arguments"),
        (KeywordArguments(), "takes 'options' and must store it in self.options"),
        (CustomLayer(StarArguments()), "what: cannot be saved"),
        (1j, "cannot be saved"),
        (b"x", "cannot be saved"),
        (open, None),
        (pathlib.Path("x"), "cannot be saved"),
        (np.random.default_rng(0), "cannot be saved"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_unsavable_objects_are_named(value, message):
    if message is None:  # a function is saved by name, whatever it does
        assert ObjectCodec({}).encode(value, "layer") == {"custom": "open"}
        return
    with pytest.raises(TypeError, match=f"layer.*{message}"):
        ObjectCodec({}).encode(value, "layer")


def test_a_layer_that_contains_itself_is_refused():
    layer = CustomLayer([])
    layer.what.append(layer)
    with pytest.raises(TypeError, match="nested at most"):
        ObjectCodec({}).encode(layer, "layer")


def test_missing_names_are_reported_together():
    config = ObjectCodec(BUILT_IN).encode([CustomLayer(Holder(custom_loss))], "value")
    with pytest.raises(ValueError, match=r"custom_objects={'CustomLayer': CustomLayer, 'Holder': Holder, .*}"):
        decode(config, BUILT_IN, {})
    with pytest.raises(TypeError, match="expected the class CustomLayer, got <function"):
        decode(config, BUILT_IN, CUSTOM | {"CustomLayer": custom_loss})


@pytest.mark.parametrize(
    "config",
    [
        *({"minidl": "os"}, {"minidl": ["eval", {}]}, {"minidl": 3}, {"minidl": [["Dense"], {}]}, {"minidl": None}),
        *(
            {"minidl": ["Dense", [3]]},
            {"minidl": ["Dense"]},
            {"custom": ["CustomLayer", {}, 1]},
            {"else": 1},
            {"minidl": {}},
        ),
        *({"minidl": ["Dense", {"units": 1, "x": 2}]}, {"minidl": "Dense", "custom": "CustomLayer"}),
        {"custom": ["custom_loss", {}]},
    ],
    ids=repr,
)
def test_nonsense_is_refused(config):
    with pytest.raises((ValueError, TypeError)):
        decode(config, BUILT_IN, CUSTOM)


def test_too_many_layers_are_refused():
    with pytest.raises(ValueError, match=f"at most {MAX_OBJECTS} layers"):
        check_names([{"minidl": "ReLU"}] * (MAX_OBJECTS + 1), BUILT_IN, {})


@pytest.mark.parametrize(
    "custom",
    [[CustomLayer], "CustomLayer", {"CustomLayer": "CustomLayer"}, {1: CustomLayer}, {"CustomLayer": None}],
    ids=repr,
)
def test_custom_objects_must_map_names_to_objects(custom):
    with pytest.raises(TypeError, match="custom_objects: expected classes and functions by name"):
        checked_custom(custom)
    assert checked_custom(None) == {} and checked_custom({"CustomLayer": CustomLayer}) == {"CustomLayer": CustomLayer}


def test_a_bare_name_is_never_a_class():
    for config, custom in (({"minidl": "Dense"}, {}), ({"custom": "CustomLayer"}, {"CustomLayer": CustomLayer})):
        with pytest.raises(TypeError, match="expected a function or an object, got the class"):
            decode({"minidl": ["Dense", {"units": 3, "kernel_initializer": config}]}, BUILT_IN, custom)
