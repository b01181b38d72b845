"""OnlineClassifier and OnlineRegressor: river's own checks, growth, and what is refused."""

import importlib
import pickle
import sys

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.estimators import river
from minidl.layers import BatchNorm1D, Dense, ReLU, Tanh
from minidl.optimizers import SGD, Adam

NAMES = [f"feature {i}" for i in range(6)]
RNG = np.random.default_rng(0)
ROWS, LABELS = RNG.normal(size=(60, 6)), RNG.integers(0, 2, 60)


def narrow(outputs):
    return [Dense(5), Tanh(), Dense(outputs)]


def examples(rows=ROWS, names=NAMES):
    return [dict(zip(names, map(float, row), strict=True)) for row in rows]


def learned(cls=river.OnlineClassifier, count=20, **options):
    model = cls(narrow, lr=0.05, **options)
    for x, y in zip(examples()[:count], LABELS, strict=False):
        model.learn_one(x, y)
    return model


def bits(model):
    return pickle.dumps(model)


def test_without_river_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.setitem(sys.modules, "river.base", None)
    spec = importlib.util.find_spec("minidl.estimators.river")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in module.__all__:
        with pytest.raises(ImportError, match=rf'^{name} needs the river package: pip install "minidl\[river\]"$'):
            getattr(module, name)()


@pytest.mark.oracle("river")
@pytest.mark.parametrize(("name", "count"), [("OnlineClassifier", 59), ("OnlineRegressor", 26)])
def test_checks_of_river(name, count):
    """A mini-batch is one step, as in river's own linear models, which leave out the same check."""
    from river import checks, linear_model

    model, passed, left_out = getattr(river, name)(), 0, set()
    for check in checks.yield_checks(model):
        if check.__name__ in model._unit_test_skips():
            left_out.add(check.__name__)
        else:
            check(model.clone())
            passed += 1
    assert passed >= count and left_out == {"check_learn_many_matches_learn_one"}
    assert left_out <= linear_model.LogisticRegression()._unit_test_skips()


@pytest.mark.oracle("river")
def test_it_learns_as_a_trainer_does():
    """One example at a time, and in mini-batches; a frame and dicts have the same places."""
    import pandas as pd

    model = learned(count=20)
    model.learn_many(pd.DataFrame(ROWS[20:50], columns=NAMES), pd.Series(LABELS[20:50]))
    places = [LABELS[0], 1 - LABELS[0]]  # the label that was seen first has the first output
    net = Sequential(narrow(2), input_shape=(8,))
    trainer, wide = Trainer(net, "softmax_cross_entropy", Adam(0.05)), np.pad(ROWS, ((0, 0), (0, 2)))
    for row, label in zip(wide[:20], LABELS, strict=False):
        trainer.train_batch(row[np.newaxis], [places.index(label)])
    trainer.train_batch(wide[20:50], [places.index(label) for label in LABELS[20:50]])
    expected = trainer.predict_proba(wide[50:])
    found = model.predict_proba_many(pd.DataFrame(ROWS[50:], columns=NAMES, index=range(100, 110)))
    assert found.columns.tolist() == places and found.index.tolist() == list(range(100, 110))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert [model.predict_one(x) for x in examples(ROWS[50:])] == [places[i] for i in expected.argmax(axis=1)]


@pytest.mark.oracle("river")
def test_new_features_and_labels_leave_what_was_learned():
    """A model that grows and one that was wide from the start of the names: further steps are the same.

    So the optimizer's averages have grown with the weights: new inputs are 0, and a new label does not occur again.
    """
    for cls in (river.OnlineClassifier, river.OnlineRegressor):
        grown, same = learned(cls), learned(cls)
        before = grown._size
        assert before[0] == 8
        more = {f"more {i}": 0.0 for i in range(20)}
        for x, y in list(zip(examples(), LABELS, strict=True))[20:40]:
            grown.learn_one(x | more, y)
            same.learn_one(x, y)
            assert grown._size[0] == 32 and same._size == before
        for x in examples(ROWS[40:]):
            ours, theirs = (model._scores(river._row(x, model._features)) for model in (grown, same))
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        assert grown._trainer.step == same._trainer.step == 40


@pytest.mark.oracle("river")
def test_labels_of_any_type_take_new_outputs():
    model = river.OnlineClassifier(narrow, lr=0.05)
    x = examples()[0]
    assert model.predict_proba_one(x) == {} and model.predict_one(x) is None
    for label in ("a", 3, 2.5, ("b", 1), "e"):
        for _ in range(40):
            model.learn_one(x, label)
        assert model.predict_one(x) == label
    proba = model.predict_proba_one(x)
    assert list(proba) == ["a", 3, 2.5, ("b", 1), "e"] and sum(proba.values()) == pytest.approx(1, abs=1e-12)
    assert model._size == (8, 8)


@pytest.mark.oracle("river")
def test_features_that_are_not_there():
    """They are 0; a prediction ignores what was never learned; the order in a dict changes no bit."""
    model, x = learned(), examples()[30]
    del x["feature 2"]
    assert model.predict_proba_one(x) == model.predict_proba_one(x | {"feature 2": 0, "unknown": 5.0})
    other = river.OnlineClassifier(narrow, lr=0.05)
    for x, y in list(zip(examples(), LABELS, strict=True))[:20]:
        other.learn_one(dict(reversed(x.items())), y)
    assert bits(other) == bits(model)


@pytest.mark.oracle("river")
def test_a_pickle_goes_on_with_the_same_bits():
    model = learned()
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        one.learn_one(examples()[30], 1)
    assert model.predict_proba_one(examples()[31]) == copy.predict_proba_one(examples()[31])


class Plain:
    lr = 0.1

    def step(self, params, lr):
        pass


@pytest.mark.oracle("river")
def test_refusals_change_nothing():
    import pandas as pd

    model, x = learned(), examples()[30]
    before = bits(model)
    numbers = pd.DataFrame(ROWS[:2], columns=NAMES)
    missing = numbers.assign(**{"feature 1": [np.nan, 1.0]})
    text, frame = x | {"new": "a"}, pd.DataFrame(ROWS[:2], columns=NAMES).assign(new=["a", "b"])
    for refused, error, message in (
        (
            lambda: model.learn_one(text, 1),
            TypeError,
            r"^x: feature 'new': expected a number, got 'a': encode it first$",
        ),
        (lambda: model.predict_one(text), TypeError, r"^x: feature 'new': expected a number"),
        (lambda: model.learn_one(x | {"new": None}, 1), TypeError, r"^x: feature 'new': expected a number, got None"),
        (
            lambda: model.learn_one(x | {"new": np.nan}, 1),
            ValueError,
            r"^x: feature 'new': .*got nan: leave out what is",
        ),
        (lambda: model.learn_one(x | {"new": 10**400}, 1), ValueError, r"^x: feature 'new': .*, got 10+"),
        (lambda: model.predict_one(x | {"new": -np.inf}), ValueError, r"^x: feature 'new': "),
        (lambda: model.learn_one([1, 2], 1), TypeError, r"^x: expected a dict of features, got list$"),
        (lambda: model.predict_proba_one([1, 2]), TypeError, r"^x: expected a dict of features, got list$"),
        (lambda: model.learn_many(ROWS[:2], pd.Series([0, 1])), TypeError, r"^X: expected a pandas.DataFrame, got nd"),
        (lambda: model.predict_many(ROWS[:2]), TypeError, r"^X: expected a pandas.DataFrame, got ndarray$"),
        (lambda: model.learn_many(numbers, [0, 1]), TypeError, r"^y: expected a pandas.Series, got list$"),
        (
            lambda: model.learn_many(numbers[:0], pd.Series([])),
            ValueError,
            r"^X: expected at least one example",
        ),
        (lambda: model.learn_many(missing, pd.Series([0, 1])), ValueError, r"^X: feature 'feature 1': expected finite"),
        (lambda: model.learn_one(x, None), ValueError, r"^y: expected a label, got None$"),
        (lambda: model.learn_many(numbers, pd.Series([0, np.nan])), ValueError, r"^y: expected a label, got nan$"),
        (lambda: model.learn_one(x | {"new": 1e300}, 1), ValueError, r"^X: "),
        (
            lambda: model.learn_many(frame, pd.Series([0, 1])),
            TypeError,
            r"^X: expected columns of real numbers, .*'new'",
        ),
        (lambda: model.learn_one(x, []), TypeError, "unhashable"),
    ):
        with pytest.raises(error, match=message):
            refused()
        assert bits(model) == before
    regressor = learned(river.OnlineRegressor)
    before = bits(regressor)
    for y in (np.nan, np.inf, 1e300):
        with pytest.raises(ValueError, match=r"^y: "):
            regressor.learn_one(x | {"new": 1.0}, y)
    with pytest.raises(FloatingPointError):
        regressor.learn_one(x | {"new": 1e38}, 1e38)
    assert bits(regressor) == before
    with pytest.raises(TypeError, match=r"^layers: expected a function of the number of outputs, got \["):
        river.OnlineClassifier([Dense(2)]).learn_one(x, 1)
    with pytest.raises(ValueError, match=r"^layers: expected 2 outputs, .*, got outputs of shape \(3,\)$"):
        river.OnlineClassifier(lambda outputs: [Dense(3)]).learn_one(x, 1)
    with pytest.raises(TypeError, match=r"^optimizer: expected one of minidl's, whose state can grow, got <"):
        river.OnlineRegressor(optimizer=Plain()).learn_one(x, 1)
    with pytest.raises(ValueError, match=r"batch norm|at least 2 examples"):
        river.OnlineRegressor(batch_norm).learn_one(x, 1)


def batch_norm(outputs):
    return [Dense(4), BatchNorm1D(), ReLU(), Dense(outputs)]


@pytest.mark.oracle("river")
def test_running_statistics_and_momentum_grow_too():
    import pandas as pd

    model = river.OnlineRegressor(batch_norm, optimizer=SGD(0.1, momentum=0.9))
    model.learn_many(pd.DataFrame(ROWS, columns=NAMES), pd.Series(LABELS.astype(float)))
    old, velocity = model._trainer.model.state_dict(), model._trainer.steps().update.state["velocity"]
    larger = model._grown(16, 1)
    for name, array in old.items():
        new = larger.model.state_dict()[name]
        np.testing.assert_array_equal(new[:, :8] if name == "0.weight" else new, array)
    grown = larger.network.parameters.views(larger.steps().update.state["velocity"])[0]
    np.testing.assert_array_equal(grown[:, :8], model._trainer.network.parameters.views(velocity)[0])
    assert not grown[:, 8:].any() and grown.any()
