"""ObjectCodec: objects as JSON and back, by registered names."""

import json
import pathlib

import numpy as np
import pytest

from minidl import Layer
from minidl.initializers import damped_he_uniform, zeros
from minidl.layers import Dense, ReLU
from minidl.saving.object_codec import MAX_OBJECTS, ObjectCodec, check_names, checked_custom, decode


def ours_function():
    """A function that stands for a built-in one."""


FUNCTIONS = {"damped_he_uniform": damped_he_uniform, "zeros": zeros, "ours_function": ours_function}
OURS = {"Dense": Dense, "ReLU": ReLU, **FUNCTIONS}


class Mine(Layer):
    """A custom layer with arguments of any kind."""

    def __init__(self, what=None):
        self.what = what


class Holder:
    """Not a layer, but has constructor arguments."""

    def __init__(self, inner, *, size=3):
        self.inner, self.size = inner, size


def my_loss(scores, y):
    """A custom loss function."""


CUSTOM = {"Mine": Mine, "Holder": Holder, "my_loss": my_loss}


def round_trip(value):
    return decode(json.loads(json.dumps(ObjectCodec(OURS).encode(value, "value"))), OURS, CUSTOM)


@pytest.mark.parametrize(
    "layer",
    [
        *(Dense(3), ReLU(), Mine(), Mine((1, 2)), Mine([Dense(2), (Mine("x"),)])),
        *(Mine({"a": Dense(1)}), Mine(np.float32(0.1))),
    ],
    ids=repr,
)
def test_layers(layer):
    assert repr(round_trip(layer)) == repr(layer)


def test_objects_and_functions():
    assert round_trip(my_loss) is my_loss and round_trip(ours_function) is ours_function
    holder = round_trip(Holder(my_loss, size=(4,)))
    assert type(holder) is Holder and holder.inner is my_loss and holder.size == (4,)


def test_a_custom_class_never_loads_as_a_built_in_one_or_vice_versa():
    mine = type("Dense", (Mine,), {"__init__": Mine.__init__})
    recipe = ObjectCodec(OURS).encode([mine(), Dense(2)], "value")
    with pytest.raises(ValueError, match=r"custom_objects={'Dense': Dense}"):
        decode(recipe, OURS, {})
    first, second = decode(recipe, OURS, {"Dense": mine})
    assert (type(first), type(second)) == (mine, Dense)


def test_two_classes_of_one_name_are_refused():
    other = type("Mine", (Mine,), {"__init__": Mine.__init__})
    recipes = ObjectCodec({})
    recipes.encode(Mine(), "layer 0")
    recipes.encode(Mine(), "layer 1")
    with pytest.raises(ValueError, match="layer 2: cannot be saved: expected one 'Mine', got two"):
        recipes.encode(other(), "layer 2")


class Lost(Layer):
    """Does not store its argument."""

    def __init__(self, size):
        pass


class Loose:
    """Takes positional arguments without names."""

    def __init__(self, **options):
        pass


class Star:
    """Does not store its arguments."""

    def __init__(self, *sizes):
        pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros(3), "got array"),
        (object, "got the class object"),
        (Lost(3), "takes 'size' and must store it in self.size"),
        (Star(), "takes 'sizes' and must store it in self.sizes"),
        (Loose(), r"positional-only arguments or \*\*kwargs"),
        (Mine(Star()), "what: cannot be saved"),
        (1j, "cannot be saved"),
        (b"x", "cannot be saved"),
        (open, None),
        (pathlib.Path("x"), "cannot be saved"),
        (np.random.default_rng(0), "cannot be saved"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_unsavable_objects_are_named(value, said):
    if said is None:  # a function is saved by name, whatever it does
        assert ObjectCodec({}).encode(value, "layer") == {"custom": "open"}
        return
    with pytest.raises(TypeError, match=f"layer.*{said}"):
        ObjectCodec({}).encode(value, "layer")


def test_a_layer_that_contains_itself_is_refused():
    layer = Mine([])
    layer.what.append(layer)
    with pytest.raises(TypeError, match="nested at most"):
        ObjectCodec({}).encode(layer, "layer")


def test_missing_names_are_reported_together():
    recipe = ObjectCodec(OURS).encode([Mine(Holder(my_loss))], "value")
    with pytest.raises(ValueError, match=r"custom_objects={'Holder': Holder, 'Mine': Mine, 'my_loss': my_loss}"):
        decode(recipe, OURS, {})
    with pytest.raises(TypeError, match="expected the class Mine, got <function"):
        decode(recipe, OURS, CUSTOM | {"Mine": my_loss})


@pytest.mark.parametrize(
    "recipe",
    [
        *({"minidl": "os"}, {"minidl": ["eval", {}]}, {"minidl": 3}, {"minidl": [["Dense"], {}]}, {"minidl": None}),
        *({"minidl": ["Dense", [3]]}, {"minidl": ["Dense"]}, {"custom": ["Mine", {}, 1]}, {"else": 1}, {"minidl": {}}),
        *({"minidl": ["Dense", {"units": 1, "x": 2}]}, {"minidl": "Dense", "custom": "Mine"}),
        {"custom": ["my_loss", {}]},
    ],
    ids=repr,
)
def test_nonsense_is_refused(recipe):
    with pytest.raises((ValueError, TypeError)):
        decode(recipe, OURS, CUSTOM)


def test_too_many_layers_are_refused():
    with pytest.raises(ValueError, match=f"at most {MAX_OBJECTS} layers"):
        check_names([{"minidl": "ReLU"}] * (MAX_OBJECTS + 1), OURS, {})


@pytest.mark.parametrize("custom", [[Mine], "Mine", {"Mine": "Mine"}, {1: Mine}, {"Mine": None}], ids=repr)
def test_custom_objects_must_map_names_to_objects(custom):
    with pytest.raises(TypeError, match="custom_objects: expected classes and functions by name"):
        checked_custom(custom)
    assert checked_custom(None) == {} and checked_custom({"Mine": Mine}) == {"Mine": Mine}


def test_a_bare_name_is_never_a_class():
    for recipe, custom in (({"minidl": "Dense"}, {}), ({"custom": "Mine"}, {"Mine": Mine})):
        with pytest.raises(TypeError, match="expected a function or an object, got the class"):
            decode({"minidl": ["Dense", {"units": 3, "kernel_initializer": recipe}]}, OURS, custom)
