"""check_layer: passes layers that keep the contract and names each fault. Built-in layers: layers/test_contract.py."""

import numpy as np
import pytest
from faulty_layers import (
    Accumulates,
    AccumulatesInOwnBuffer,
    BatchInShape,
    CachesInInference,
    Center,
    ChangesItsArgument,
    Columns,
    CountsInInference,
    DrawsInInference,
    DriftsInInference,
    Drop,
    Embedding,
    ForgottenBias,
    ForgottenFactor,
    GivesToAllEquals,
    GlobalRandomNumbers,
    HalfGrad,
    KeepsStateInAnAttribute,
    LazyWithoutDx,
    LogsInInference,
    LosesOverlap,
    LosesRepeats,
    NoDx,
    OffByOne,
    PeeksAndDraws,
    PeeksBackward,
    PeeksForward,
    PeeksInTraining,
    Pool,
    Project,
    ReadsNeighbors,
    ReadsOtherDy,
    RejectsEmptyBatch,
    RemembersInInference,
    ReplacesBuffer,
    ReturnsNothing,
    Scale,
    SeedsTheGlobalGenerator,
    SharingPool,
    ThreeExamples,
    WidensDtype,
    WidensDxDtype,
    WidensVectors,
    WritesIntoDy,
    WritesIntoX,
    WritesIntoXLater,
    WrongAfterSixteen,
    WrongBeyondTheBound,
    WrongDtype,
    WrongDx,
    WrongDxShape,
    WrongGrad,
    WrongGradAfterSixteen,
    WrongInFloat32,
    WrongShape,
    WrongSingleDx,
)
from moving_layers import FillsWithSevens, Roll, Shift
from slow_marks import slow_after

from minidl import Sequential
from minidl.layers import BatchNorm2D, Block, Conv2D, Dense, Dropout, Flatten, MaxPool2D, Parallel, ReLU, Residual
from minidl.testing import check_layer


# ---- correct layers pass ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Scale(), (3,)),
        (Scale(), (2, 3, 2)),
        (Project(3), (4,)),
        (Pool(), (2, 6)),
        (SharingPool(), (2, 6)),
        (Roll(), (1, 2, 6)),
        (Shift(), (2, 2, 6)),
        (Drop(), (5,)),
        (Drop(), (2, 3)),
        (Columns(1, 3), (6,)),
        (Columns(0, 1), (2, 3, 4)),
        (Parallel(Columns(0, 2), Columns(2, 3)), (3, 2)),
    ],
    ids=str,
)
def test_correct_numpy_layers_pass(layer, shape):
    check_layer(layer, shape)


def test_layers_that_couple_examples_pass_if_declared():
    check_layer(Center(), (3,), couples_examples=True)


# ---- faults ----------------------------------------------------------------------------------------
GRADIENT = r"expected .* \(finite differences\), got"
BUGS = [
    (WrongDx, (3,), rf"WrongDx: dx\[0, 0\]: {GRADIENT}"),
    (WrongSingleDx, (2, 3), r"WrongSingleDx: dx\[2, 1, \d\]"),
    (ForgottenFactor, (3,), rf"ForgottenFactor: the grad of 'weight'\[0, 0\]: {GRADIENT}"),
    (WrongGrad, (3,), rf"WrongGrad: the grad of 'gain'\[\d\]: {GRADIENT}"),
    (ForgottenBias, (3,), "ForgottenBias: backward does not write the grad of 'bias'"),
    (HalfGrad, (3,), "HalfGrad: backward does not write the grad of 'bias' .*not all of it"),
    (Accumulates, (3,), "Accumulates: .*the grad of 'bias'.*accumulate"),
    (AccumulatesInOwnBuffer, (3,), "AccumulatesInOwnBuffer: .*the grad of 'bias'.*accumulate"),
    (RemembersInInference, (3,), "RemembersInInference: inference changed seen, x"),
    (CountsInInference, (3,), "CountsInInference: inference changed calls"),
    (LogsInInference, (3,), "LogsInInference: inference changed log"),
    (KeepsStateInAnAttribute, (3,), "KeepsStateInAnAttribute: a copy of a trained model predicts other numbers"),
    (ChangesItsArgument, (3,), "ChangesItsArgument: a copy of a trained model predicts other numbers"),
    (DriftsInInference, (3,), r"DriftsInInference: inference changed params\['bias'\]"),
    (DrawsInInference, (3,), "DrawsInInference: (inference changed mask|two inferences)"),
    (PeeksForward, (3,), "PeeksForward: the output of example 0 changes with the batch"),
    (PeeksInTraining, (3,), "PeeksInTraining: in training, the output of example 0 changes with the batch"),
    (PeeksAndDraws, (9,), "PeeksAndDraws: in training, the output of example 0 changes with the batch"),
    (PeeksBackward, (3,), "PeeksBackward: backward adds example 0 to the dx of other examples"),
    (ReadsOtherDy, (3,), "ReadsOtherDy: the dx of example 0 changes with the dy of others"),
    (WritesIntoX, (3,), "WritesIntoX: writes into x"),
    (WritesIntoXLater, (3,), "WritesIntoXLater: .*writes into x"),
    (WritesIntoDy, (3,), "WritesIntoDy: backward writes into x or dy"),
    (LazyWithoutDx, (3,), "LazyWithoutDx: the grad of '(gain|bias)' changes if dx is not needed"),
    (CachesInInference, (3,), "CachesInInference: the grad of 'gain' changes if an inference comes in between"),
    (WrongBeyondTheBound, (20,), rf"WrongBeyondTheBound: dx\[\d, \d+\]: {GRADIENT}"),
    (WrongShape, (3,), r"WrongShape: a batch of 1 failed: .*forward to return shape \(1, 3, 1\), got \(1, 3\)"),
    (WrongDxShape, (3,), r"WrongDxShape: .*backward to return shape \(1, 3\), got \(1, 2\)"),
    (ReturnsNothing, (3,), "ReturnsNothing: .*backward to return shape .* got NoneType"),
    (BatchInShape, (3,), "BatchInShape: a batch of 1 failed"),
    (ThreeExamples, (3,), "ThreeExamples: a batch of 1 failed"),
    (
        RejectsEmptyBatch,
        (3,),
        r"RejectsEmptyBatch: a batch of 0 failed \(the contract: a batch may have no examples\): cannot reshape",
    ),
    (WrongDtype, (3,), "WrongDtype: .*expected .*float64, got float32"),
    (WidensDtype, (3,), "WidensDtype: .*expected .*float32, got float64"),
    (WidensDxDtype, (3,), "WidensDxDtype: .*expected .*float32, got float64"),
    (WrongInFloat32, (3,), "WrongInFloat32: .*float32.*float64"),
    (WrongAfterSixteen, (3,), "WrongAfterSixteen: .*the output of example 16 changes with the batch"),
    (WrongGradAfterSixteen, (3,), "WrongGradAfterSixteen: .*the grad of 'bias'.*sum"),
    (LosesOverlap, (2, 6), rf"LosesOverlap: dx\[\d, \d, \d\]: {GRADIENT}"),
    (GlobalRandomNumbers, (3,), "GlobalRandomNumbers: .*self.rng"),
    (FillsWithSevens, (1, 2, 6), "FillsWithSevens: expected it to copy pixels, .*, got 7 for pixels from 1012 to 1023"),
    (SeedsTheGlobalGenerator, (3,), "SeedsTheGlobalGenerator: .*self.rng"),
]


@pytest.mark.parametrize(("bug", "shape", "message"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
def test_faults_are_found(bug, shape, message):
    with pytest.raises(AssertionError, match=rf"^{message}"):
        check_layer(bug(), shape)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("x", [None, np.arange(60).reshape(5, 2, 6) % 7 / 4])
def test_a_pool_that_gives_dy_to_all_equal_inputs(x, seed):
    expected = r"GivesToAllEquals: dx\[\d, \d, \d\] and that of \d+ equal elements: expected a sum of .* got"
    x = None if x is None else x[:, :, np.array([0, 0, 1, 1, 2, 3])]  # ties in a window
    with pytest.raises(AssertionError, match=expected):
        check_layer(GivesToAllEquals(), (2, 6), seed=seed, x=x)
    check_layer(SharingPool(), (2, 6), seed=seed, x=x)


@pytest.mark.parametrize("seed", range(10))
def test_faults_are_found_with_any_seed(seed):
    for bug, shape, _ in BUGS:
        with pytest.raises(AssertionError):
            check_layer(bug(), shape, seed=seed)


def test_undeclared_coupling_of_examples_is_a_fault():
    with pytest.raises(AssertionError, match=r"Center: the output of example 0 .*couples_examples=True"):
        check_layer(Center(), (3,))


# ---- containers ------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", slow_after(1, range(5)))
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Residual(Conv2D(2, 3, padding=1), ReLU(), Conv2D(2, 3, padding=1)), (2, 3, 4)),
        (Residual(MaxPool2D(3, stride=1, padding=1), ReLU(), shortcut=[Conv2D(2, 1), ReLU()]), (2, 3, 4)),
        (Residual(Scale(), ReLU(), Drop()), (2, 3)),
        (Residual(Dense(3), Dropout(0.5)), (3,)),
        (Parallel(Scale(), [Conv2D(2, 1), ReLU()], []), (2, 3, 4)),
        (Parallel(ReLU(), MaxPool2D(3, stride=1, padding=1), join="add"), (2, 3, 4)),
        (Block(Conv2D(2, 2), Residual(Scale(), ReLU()), MaxPool2D(2)), (1, 4, 5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers_pass(layer, shape, seed):
    check_layer(layer, shape, seed=seed)


def test_containers_that_couple_examples_pass_if_declared():
    block = Residual(Conv2D(2, 3, padding=1), BatchNorm2D(), ReLU())
    check_layer(block, (2, 3, 3), couples_examples=True)
    with pytest.raises(AssertionError, match=r"^Residual: in training, .*couples_examples=True"):
        check_layer(block, (2, 3, 3))


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Residual(WrongDx()), (3,), rf"Residual: dx\[0, 0\]: {GRADIENT}"),
        (Residual(Dense(3), WrongGrad()), (3,), rf"Residual: the grad of 'body.1.gain'\[\d\]: {GRADIENT}"),
        (Parallel(ReLU(), ForgottenBias()), (3,), "Parallel: backward does not write the grad of 'branches.1.0.bias'"),
        (Block(ReLU(), Block(Accumulates())), (3,), "Block: .*the grad of '1.0.bias'.*accumulate"),
        (Residual(RemembersInInference()), (3,), r"Residual: inference changed body\.0\.seen, body\.0\.x"),
        (Block(ReLU(), DriftsInInference()), (3,), r"Block: inference changed 1\.params\['bias'\]"),
        (Residual(ReLU(), WidensDtype()), (3,), "Residual: body.1, WidensDtype: expected .*float32, got float64"),
        (Block(ReLU(), Residual(WidensDxDtype())), (3,), "Block: 1, Residual: body.0, WidensDxDtype: expected dx"),
        (Residual(ReplacesBuffer()), (3,), "Residual: body.0, ReplacesBuffer: training replaces the array .*self.mean"),
        (Residual(PeeksForward()), (3,), "Residual: the output of example 0 changes with the batch"),
        (Residual(GlobalRandomNumbers()), (3,), "Residual: .*self.rng"),
        (Residual(LosesOverlap(), shortcut=Pool()), (2, 6), rf"Residual: dx\[\d, \d, \d\]: {GRADIENT}"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_faults_in_containers_are_found(layer, shape, message):
    with pytest.raises(AssertionError, match=rf"^{message}"):
        check_layer(layer, shape)


# ---- layers that need particular examples ----------------------------------------------------------
WORDS = np.random.default_rng(3).integers(0, 7, (12, 4))


@pytest.mark.parametrize("seed", slow_after(1, range(5)))
def test_an_embedding_passes_with_words(seed):
    check_layer(Embedding(7, 3), (4,), x=WORDS, seed=seed)
    check_layer(Embedding(7, 3), (4,), x=WORDS.astype("uint8"), seed=seed)
    check_layer(Block(Embedding(7, 3), Flatten(), Dense(2), ReLU()), (4,), x=WORDS, seed=seed)
    check_layer(Parallel([Columns(0, 2), Embedding(7, 3)], [Columns(2, 4), Embedding(5, 3)]), (4,), x=WORDS % 5)


def test_an_embedding_rejects_normal_samples():
    with pytest.raises(AssertionError, match=r"^Embedding: a batch of 1 failed: index .*out of bounds"):
        check_layer(Embedding(1, 3), (4,))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("bug", "message"),
    [
        (LosesRepeats, rf"LosesRepeats: the grad of 'table'\[\d, \d\]: {GRADIENT}"),
        (OffByOne, rf"OffByOne: the grad of 'table'\[\d, \d\]: {GRADIENT}"),
        (NoDx, r"NoDx: a batch of 1 failed: .*backward to return shape \(1, 4\), got NoneType"),
        (WidensVectors, "WidensVectors: expected an output of float32, got float64"),
        (ReadsNeighbors, "ReadsNeighbors: the output of example 0 changes with the batch"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_faults_of_embeddings_are_found(bug, message, seed):
    with pytest.raises(AssertionError, match=rf"^{message}"):
        check_layer(bug(7, 3), (4,), x=WORDS, seed=seed)


@pytest.mark.parametrize("bug", [bug for bug, shape, _ in BUGS if shape == (3,)], ids=lambda bug: bug.__name__)
def test_faults_are_found_with_given_examples(bug, rng):
    with pytest.raises(AssertionError):
        check_layer(bug(), (3,), x=rng.standard_normal((40, 3)))


def test_dx_is_checked_if_the_examples_are_not_integers():
    x = np.arange(30).reshape(10, 3)
    check_layer(WrongDx(), (3,), x=x)
    with pytest.raises(AssertionError, match=rf"^WrongDx: dx\[0, 0\]: {GRADIENT}"):
        check_layer(WrongDx(), (3,), x=x / 10)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((5, 4)), ValueError, r"x: expected at least two examples, \(n, 3\), got shape \(5, 4\)"),
        (np.zeros((1, 3)), ValueError, r"x: expected at least two examples, \(n, 3\), got shape \(1, 3\)"),
        (np.zeros(3), ValueError, r"x: expected at least two examples, \(n, 3\), got shape \(3,\)"),
        (np.full((5, 3), np.nan), ValueError, "x: expected finite values"),
        (np.full((5, 3), 2**24 + 1), ValueError, "x: expected integers that float32 can represent"),
        (np.zeros((5, 3), complex), TypeError, "x: expected real numbers, got dtype complex128"),
        ([["a", "b", "c"]] * 3, TypeError, "x: expected real numbers"),
    ],
)
def test_invalid_examples_are_refused(x, error, message):
    with pytest.raises(error, match=message):
        check_layer(Scale(), (3,), x=x)


# ---- arguments -------------------------------------------------------------------------------------
def test_the_layer_is_not_changed():
    fresh = Dense(3)
    before = vars(fresh).copy()
    check_layer(fresh, (2,))
    assert vars(fresh) == before

    dense = Dense(3)
    model = Sequential([dense, ReLU()], input_shape=(2,))
    before, state = vars(dense).copy(), model.state_dict()
    check_layer(dense, (4,))
    assert vars(dense) == before
    for name, array in model.state_dict().items():
        assert np.array_equal(array, state[name])


def test_the_global_generator_is_not_changed():
    before = np.random.get_state()  # noqa: NPY002
    check_layer(Drop(), (3,))
    assert str(np.random.get_state()) == str(before)  # noqa: NPY002


@pytest.mark.parametrize("layer", [None, "Dense", Dense, 3, Sequential([Dense(1)])], ids=str)
def test_only_layers_are_accepted(layer):
    with pytest.raises(TypeError, match="layer: expected a Layer, got"):
        check_layer(layer, (3,))


def test_a_layer_that_cannot_be_built_is_reported():
    with pytest.raises(ValueError, match=r"Dense.*\(2, 3\).*Flatten"):
        check_layer(Dense(2), (2, 3))
