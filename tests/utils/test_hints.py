"""Words of Keras and PyTorch, answered with a word that exists here; docs/reference/errors.md quotes whole messages."""

import builtins
import copy
import functools
import inspect
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics

import minidl
from minidl import Layer, Sequential, Trainer, callbacks, layers, losses, metrics, optimizers, schedules
from minidl.engine.build_warnings import warn
from minidl.estimators import SequentialClassifier
from minidl.layers import BatchNorm2D, Conv2D, Dense, Dropout, Residual
from minidl.optimizers import SGD
from minidl.training.history import History
from minidl.utils import foreign_arguments, foreign_words
from minidl.utils.hints import hint, known_arguments, plain

TABLES = {name: table for name, table in vars(foreign_words).items() if isinstance(table, dict) and name.isupper()}
TABLES |= {"ARGUMENTS": foreign_arguments.ARGUMENTS, **foreign_arguments.OWNERS}
KNOWN = {  # the names that a table is consulted for after they were not found
    "LAYERS": layers.__all__,
    "CALLBACKS": callbacks.__all__,
    "LOSSES": losses.NAMES,
    "METRICS": metrics.NAMES,
    "MODEL": [name for name in dir(Sequential) if not name.startswith("_")],
    "TRAINER": [name for name in dir(Trainer) if not name.startswith("_")],
    "OPTIMIZER": dir(optimizers.Optimizer),
    "HISTORY": dir(dict),
    "PACKAGE": minidl.__all__,
    "OPTIMIZERS": [],
    "SCHEDULES": optimizers.__all__,
    "MONITORS": ["loss", "accuracy", "val_loss", "val_accuracy"],
}
CLASSES = [
    getattr(module, name)
    for module in (layers, losses, optimizers, callbacks)
    for name in module.__all__
    if name[0] != "R"
]
CLASSES = [cls for cls in CLASSES if inspect.isclass(cls)] + [Sequential, Trainer]


def model():
    return Sequential([Dense(3)], input_shape=(4,))


def trained():
    trainer = Trainer(model(), "softmax_cross_entropy", SGD(0.1))
    trainer.fit(np.zeros((4, 4)), np.zeros(4, int), verbose=0)
    return trainer


TRAINER = trained()
NAMESPACE = {  # what the names in answers stand for
    **vars(builtins),
    "TopKAccuracy": metrics.TopKAccuracy,
    "sklearn": sklearn,
    **{
        name: getattr(module, name)
        for module in (layers, losses, optimizers, callbacks, minidl)
        for name in module.__all__
    },
    "minidl": minidl,
    "trainer": TRAINER,
    "model": TRAINER.model,
    "optimizer": TRAINER.optimizer,
    "history": TRAINER.history,
    "layer": TRAINER.model[0],
    "copy": copy,
    "score": SequentialClassifier().score,
    "y": np.zeros(3),
}
PROSE = {"CPUs", "Keras", "NumPy", "PyTorch", "TensorFlow"}


@pytest.mark.parametrize("name", TABLES)
def test_keys_are_plain_and_free(name):
    assert all(key == plain(key) for key in TABLES[name])
    if name in KNOWN:
        assert not set(TABLES[name]) & {plain(known) for known in KNOWN[name]}


def recommended(answer):
    """Yields what an answer says to write: dotted names, names that are called, and names of classes."""
    for match in re.finditer(r"(?<![\w./'-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?![\w/'-])", answer):
        called = answer[match.end() :][:1] == "("
        if called or "." in match[0] or re.search("[A-Z].*[a-z]", match[0]):
            yield match[0]


def resolve(path):
    """Returns what a dotted name of an answer means; raises NameError or AttributeError if it does not exist."""
    first, *rest = path.split(".")
    if first not in NAMESPACE:
        raise NameError(path)
    return functools.reduce(getattr, rest, NAMESPACE[first])


@pytest.mark.parametrize("name", TABLES)
def test_answers_name_what_exists(name):
    for answer in TABLES[name].values():
        answer = answer.replace("Trainer(model, loss, optimizer).", "trainer.")
        for path in set(recommended(answer)) - PROSE:
            resolve(path)
        for path, arguments in re.findall(r"(?<![\w.])([A-Za-z_][\w.]*)\(([^()]*)\)", answer):
            if "=" in arguments:
                assert set(re.findall(r"(\w+)=", arguments)) <= set(inspect.signature(resolve(path)).parameters), answer
        if name in ("LOSSES", "METRICS"):
            assert set(re.findall(r"use '(\w+)'", answer)) <= {*losses.NAMES, *metrics.NAMES}
        for page in re.findall(r"docs/[\w/-]+\.md", answer):
            assert (Path(__file__).parents[2] / page).exists()


@pytest.mark.parametrize("answer", ["use Normalize.of(X)", "use Conv3D(3)", "use model.freeze()", "use SiLu()"])
def test_an_answer_that_names_nothing_is_found(answer):
    with pytest.raises((NameError, AttributeError)):
        for path in recommended(answer):
            resolve(path)


def test_arguments_that_exist_are_named():
    """Each `name=` in an answer about arguments is an argument of something public."""
    functions = [cls.__init__ for cls in CLASSES + [getattr(layers, name) for name in layers.__all__]]
    functions += [Trainer.fit, Trainer.evaluate, Sequential.predict, Sequential.forward]
    functions += [value.__init__ for value in vars(schedules).values() if inspect.isclass(value)]
    known = {name for function in functions for name in inspect.signature(function).parameters}
    answered = {name for answer in foreign_arguments.ARGUMENTS.values() for name in re.findall(r"\b(\w+)=", answer)}
    assert answered - {"mode"} <= known  # that of Keras, explained


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_constructor_answers(cls):
    takes_any_word = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())
    if "__init__" in vars(cls) and cls not in (Layer,) and not takes_any_word:
        required = [
            1
            for p in list(inspect.signature(cls).parameters.values())
            if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        with pytest.raises(TypeError, match=rf"^{cls.__name__}: expected (no )?argument.*, got wrong_word=$"):
            cls(*required, wrong_word=1)


def test_a_nested_known_word_wins_over_a_typo():
    assert hint("Conv2d", {}, ["Conv2D"]) == "; did you mean 'Conv2D'?"
    assert hint("zzz", {}, ["Conv2D"]) == ""
    assert hint("loss", {}, ["loss"]) == "; did you mean 'loss'?"


def test_signatures_stay():
    assert str(inspect.signature(Dropout)) == "(rate: 'float') -> 'None'"
    assert list(inspect.signature(Trainer.fit).parameters)[:4] == ["self", "X", "y", "epochs"]


def test_functions():
    @known_arguments
    def scale(x, factor=1):
        return x * factor

    assert scale(2, factor=3) == 6
    with pytest.raises(
        TypeError, match=r"^scale: expected arguments from x, factor, got facto=; did you mean 'factor'"
    ):
        scale(2, facto=3)
    with pytest.raises(TypeError, match=r"^scale: expected x, factor as positional arguments, got 3$"):
        scale(2, 3, 4)

    @known_arguments
    def anything(*args, **kwargs):
        return len(args) + len(kwargs)

    assert anything(1, 2, activation=3) == 3


def test_a_users_layer_answers_and_may_have_foreign_words():
    class Own(Layer):
        def __init__(this, units, stride=1, activation="relu"):
            this.units, this.stride, this.activation = units, stride, activation

        def forward(self, x, training):
            return x

    assert Own(3, activation="tanh").activation == "tanh"
    expected = "^Own: expected arguments from units, stride, activation, got"
    with pytest.raises(TypeError, match=f"{expected} strides=; use stride=$"):
        Own(3, strides=2)
    with pytest.raises(TypeError, match=f"{expected} epsilon=$"):  # "use eps=" would be the next error
        Own(3, epsilon=0.1)
    assert copy.deepcopy(Own(3)).units == 3


def test_missing_attributes_stay_attribute_errors():
    for thing in (model(), Trainer(model(), "huber", SGD(0.1)), SGD(0.1), History()):
        assert not hasattr(thing, "zero_grad")
        assert not hasattr(thing, "compile")
        with pytest.raises(AttributeError, match=f"'{type(thing).__name__}' object has no attribute 'blah'"):
            thing.blah  # noqa: B018
        copy.deepcopy(thing)
        pickle.loads(pickle.dumps(thing))


def test_an_attribute_error_inside_a_property_stays():
    class Own(Sequential):
        @property
        def size(self):
            return self.layers[0].missing

    with pytest.raises(AttributeError, match="'Dense' object has no attribute 'missing'"):
        Own([Dense(3)]).size  # noqa: B018


MODULES = (minidl, layers, losses, optimizers, callbacks)


@pytest.mark.parametrize(
    ("module", "name", "answer"),
    [
        (layers, "Linear", "use Dense(units)"),
        (layers, "Conv2d", "did you mean 'Conv2D'?"),
        (losses, "MSELoss", "use 'mean_squared_error'"),
        (optimizers, "StepLR", "use minidl.schedules.Step"),
        (callbacks, "ModelCheckpoint", "use Checkpoint(path)"),
        (minidl, "load", "use minidl.Sequential.load(path)"),
    ],
)
def test_a_missing_name_has_a_hint(module, name, answer):
    message = re.escape(f"module {module.__name__!r} has no attribute {name!r}; {answer}")
    with pytest.raises(ImportError, match=f"^{message}$"):
        getattr(module, name)
    with pytest.raises(ImportError, match=f"^{message}$"):
        exec(f"from {module.__name__} import {name}", {})


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_names_that_tools_look_for_have_no_hint(module):
    for name in ("__wrapped__", "load_tests", "pytest_plugins", "zzz"):
        assert not hasattr(module, name)
    with pytest.raises(ImportError, match=r"^cannot import name 'zzz'"):
        exec(f"from {module.__name__} import zzz", {})


def test_objects_of_pytorch_are_refused():
    foreign = type("MSELoss", (), {"__module__": "torch.nn.modules.loss", "__call__": lambda self, s, y: None})()
    with pytest.raises(TypeError, match=r"; use 'mean_squared_error'$"):
        Trainer(model(), foreign, SGD(0.1))
    adam = type("Adam", (), {"__module__": "torch.optim.adam", "step": lambda self: None})()
    with pytest.raises(TypeError, match=r"; use Adam\(0.001\) of minidl.optimizers$"):
        Trainer(model(), "huber", adam)
    own = type("Adam", (), {"__module__": "mine", "step": lambda self, params, lr: None, "lr": 0.1})()
    assert Trainer(model(), "huber", own).optimizer is own


@pytest.mark.parametrize(
    ("conv", "shape", "warns"),
    [
        (Conv2D(3, 16, 3), (3, 32, 32), True),
        (Conv2D(1, 6, 5), (1, 28, 28), True),
        (Conv2D(16, 3, 1), (3, 32, 32), False),
        (Conv2D(64, 7, 2), (3, 64, 64), False),
        (Conv2D(96, 16, 16), (3, 64, 64), False),  # patches
        (Conv2D(3, 5, 3), (3, 64, 64), False),
        (Conv2D(3, (16, 16), 3), (3, 64, 64), False),
    ],
)
def test_pytorchs_order_of_arguments(conv, shape, warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Sequential([conv], input_shape=shape)
    assert [str(one.message).partition("; ")[0][:15] for one in caught] == (["layer 0, Conv2D"] if warns else [])
    assert all(one.filename == __file__ for one in caught)


def test_only_the_first_convolution_is_looked_at():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn([(Residual(Dense(3)), "layer 0"), (BatchNorm2D(), "layer 1")], (3, 32, 32))
        warn([(Conv2D(16, 3), "layer 0"), (Conv2D(3, 16, 3), "layer 1")], (3, 32, 32))


def test_fit_has_three_positions():
    trainer = Trainer(model(), "softmax_cross_entropy", SGD(0.1))
    X, y = np.zeros((4, 4)), np.zeros(4, int)
    trainer.fit(X, y, 2, verbose=0)
    assert trainer.epoch == 2
    with pytest.raises(
        TypeError, match="expected X, y, epochs as positional arguments, got 4; the others are batch_size="
    ):
        trainer.fit(X, y, 32, 10)
    assert trainer.epoch == 2


class Part:
    """Has what a loss, metric, optimizer, callback and schedule have."""

    lr = 0.1

    def __init__(self, rate=1):
        pass

    def __call__(self, *arguments):
        return 0.0

    def step(self, params, lr):
        pass

    def on_fit_begin(self, trainer):
        pass


class Same(Layer):
    def forward(self, x, training):
        return x

    def backward(self, dy):
        return dy


@pytest.mark.parametrize("make", [
    lambda cls: Trainer(model(), cls, SGD(0.1)),
    lambda cls: Trainer(model(), "huber", cls),
    lambda cls: Trainer(model(), "huber", SGD(0.1), [cls]),
    lambda cls: Trainer(model(), "huber", SGD(0.1), cls),
    lambda cls: Trainer(model(), "huber", SGD(0.1), distributed=cls),
    lambda cls: Trainer(cls, "huber", SGD(0.1)),
    lambda cls: Trainer(model(), "huber", SGD(0.1)).fit(np.ones((2, 4)), np.ones((2, 3)), callbacks=[cls]),
    lambda cls: Trainer(model(), "huber", SGD(0.1)).fit(np.ones((2, 4)), np.ones((2, 3)), callbacks=cls),
    lambda cls: SGD(cls),
    lambda cls: Sequential([Dense(2, kernel_initializer=cls)], (3,)),
    lambda cls: Sequential([cls]),
    lambda cls: Residual(Dense(4), cls),
    lambda cls: minidl.testing.check_layer(cls, (3,)),
    lambda cls: minidl.testing.check_loss(cls, (3,), np.ones((2, 3))),
])  # fmt: skip
@pytest.mark.parametrize("cls", [Part, Same, Dropout, losses.Huber, metrics.TopKAccuracy])
def test_a_class_instead_of_an_object(make, cls):
    name = cls.__name__
    with pytest.raises(TypeError, match=rf"got <class .*{name}'>.*; pass an object, {name}\(...\), not its class"):
        make(cls)


def by_names(*names):
    """Returns a function with arguments of these names."""

    def function(*given):
        return 0.0

    kinds = inspect.Parameter
    function.__signature__ = inspect.Signature([kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in names])
    return function


@pytest.mark.parametrize("y", ["y", "y_true", "target", "labels"])
@pytest.mark.parametrize("scores", ["scores", "y_pred", "output", "logits"])
def test_arguments_of_the_other_order(y, scores):
    with pytest.raises(TypeError, match=rf"loss\(scores, y\), got function\({y}, {scores}\): exchange its arguments"):
        losses.get(by_names(y, scores))
    with pytest.raises(TypeError, match=rf"metric\(y, scores\), got function\({scores}, {y}\): exchange its arguments"):
        metrics.get([by_names(scores, y)])
    assert metrics.get([by_names(y, scores)]) and losses.get(by_names(scores, y))


def test_other_names_say_nothing_about_the_order():
    for names in (("y", "t"), ("a", "b"), ("x", "y"), ("y",), (), ("scores", "t", "weight")):
        function = by_names(*names)
        assert losses.get(function) is function and list(metrics.get([function]).values()) == [function]
    assert metrics.get([max])


def test_an_error_in_a_loss_says_how_it_was_called():
    def exchanged(a, b):
        return b.sum(axis=1), b

    with pytest.raises(np.exceptions.AxisError) as error:
        Trainer(model(), exchanged, SGD(0.1)).train_batch(np.ones((2, 4)), [0, 1])
    (note,) = error.value.__notes__
    assert note.startswith("loss: called as loss(scores, y), with scores of shape (2, 3) and y of shape (2,): <")
