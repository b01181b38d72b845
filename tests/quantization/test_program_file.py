"""Files of quantized nets: their bytes are stable, and damaged or hostile ones are refused."""

import hashlib
import random
import re

import numpy as np
import pytest
from conformance.hostile_files import modified_file
from quantized_models import integers_of

from minidl import FileError, Sequential, Trainer
from minidl.layers import Dense
from minidl.optimizers import SGD
from minidl.quantization import QuantizedModel
from minidl.quantization import program as p
from minidl.quantization.noise import Noise
from minidl.quantization.program_file import MOST_NUMBERS
from minidl.saving import safetensors_file


def by_hand():
    """A model of every kind of operation, of which no number was measured."""
    one = p.Quantization(0.5, 3)
    shapes = [(2, 2, 2), (3, 2, 2), (3, 1, 1), (3, 1, 1), (3, 1, 1), (3, 1, 1), (3, 1, 1), (6, 1, 1)]
    thirty = np.full(3, 30, np.int32)
    product = p.SumOfProducts(
        "0, Conv2D", (0,), np.arange(-3, 3).astype(np.int8).reshape(3, 2, 1, 1), thirty, 2**20 * thirty, thirty,
        (1, 1), (0, 0, 0, 0), (1, 1), 1, -128, 127,
    )  # fmt: skip
    operations = (
        product,
        p.MaxPool("1", (1,), ((0, 2),), ((0, 2),), (1, 1)),
        p.AveragePool("2", (1,), ((0, 2),), ((0, 2),), (2,), (2,), {4: (2**30, 32)}),
        p.Add("3", (2, 3), (500, 600), 10, -100, 100),
        p.Multiply("4", (4, 3), 2**30, 34),
        p.Lookup("5, Tanh", (5,), np.arange(-128, 128).astype(np.int8)),
        p.Rearrange("6", (5, 6), np.arange(6, dtype=np.int32)[::-1].copy()),
    )
    made = p.QuantizeInput(np.array([1.0, 0.5]), np.array([-128.0, 0.25]))
    program = p.Program(made, tuple(p.Value(shape, one) for shape in shapes), operations)
    noise = [Noise("", "input", np.inf, 0.0, 0.0, 0), *(Noise(o.label, o.kind, 20.0, 0.5, 0.0, 3) for o in operations)]
    return QuantizedModel(program, (2, 2, 2), noise=noise)


def test_the_file_format_is_stable(tmp_path):
    """A new hash means a new format, which needs a new FORMAT: then old files must load."""
    model = by_hand()
    x = np.random.default_rng(0).integers(0, 256, (9, 2, 2, 2))
    assert np.array_equal(model.predict_int8(x), integers_of(model.program, x)[-1].reshape(9, 6))
    model.save(tmp_path / "net")
    digest = hashlib.sha256((tmp_path / "net").read_bytes()).hexdigest()
    assert digest == "4683f0744148d0790a6b98477bdcc7a2975678b1f0be9153a5696c3f0c20ea2c"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "net.safetensors"
    by_hand().save(path)
    return path


def test_damaged_files_are_refused(path):
    good = path.read_bytes()
    for place in (*range(8 * 300), *range(8 * 300, 8 * len(good), 97)):
        damaged = bytearray(good)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(FileError):
            QuantizedModel.load(path)
    for size in range(0, len(good), 53):
        path.write_bytes(good[:size])
        with pytest.raises(FileError):
            QuantizedModel.load(path)


def set_item(*keys, to):
    def edit(config, tensors):
        for key in keys[:-1]:
            config = config[key]
        config[keys[-1]] = to

    return edit


def drop(*keys):
    def edit(config, tensors):
        for key in keys[:-1]:
            config = config[key]
        del config[keys[-1]]

    return edit


def tensor(name, change):
    def edit(config, tensors):
        tensors[name] = np.asarray(change(tensors[name]))

    return edit


def large(config, tensors):
    """A copy of one number of a large value: the file is small, a table of its places is not."""
    config["program"] = {
        "values": [[1, 1, 2**31, 0.5, 3], [1, 1, 1, 0.5, 3]],
        "operations": [{"kind": "copy", "label": "0, Crop", "inputs": [0]}],
    }
    config["input_shape"], config["output_shape"], config["noise"] = [1, 1, 2**31], [1], []
    tensors.clear()
    tensors |= {"program.input.factors": np.ones(1), "program.input.offsets": np.zeros(1)}
    tensors |= {"program.0.index": np.zeros(1, np.int32), "noise": np.zeros((0, 3))}


OPERATIONS = ("program", "operations")
HOSTILE = {
    "no operations": (drop(*OPERATIONS), "program: expected"),
    "no noise": (drop("noise"), "config: expected"),
    "another key": (set_item("more", to=1), "config: expected"),
    "a program of numbers": (set_item("program", to=3), "program: expected"),
    "values of strings": (set_item("program", "values", 0, to="abcde"), "expected a whole number, got 'a'"),
    "values of two numbers": (set_item("program", "values", 0, to=[1, 2]), "unpack"),
    "a scale of 0": (set_item("program", "values", 3, 3, to=0.0), "expected a positive real number as scale, got 0.0"),
    "a whole scale": (set_item("program", "values", 3, 3, to=1), "expected a positive real number as scale, got 1"),
    "a zero point of 200": (set_item("program", "values", 3, 4, to=200), "expected"),
    "a negative size": (set_item("program", "values", 0, 0, to=-2), "expected"),
    "an operation of no kind": (drop(*OPERATIONS, 0, "kind"), "operation 0: expected a kind"),
    "an unknown kind": (set_item(*OPERATIONS, 0, "kind", to="os.system"), "operation 0: expected a kind"),
    "a list as kind": (set_item(*OPERATIONS, 0, "kind", to=[]), "operation 0: expected a kind"),
    "an operation that is a list": (set_item(*OPERATIONS, 0, to=[1]), "operation 0: expected a kind"),
    "no stride": (drop(*OPERATIONS, 0, "stride"), "expected the array '0.stride'"),
    "another argument": (set_item(*OPERATIONS, 1, "more", to=1), "operation 1: expected"),
    "a number as label": (set_item(*OPERATIONS, 1, "label", to=1), "operation 1: expected a label"),
    "a number as inputs": (set_item(*OPERATIONS, 1, "inputs", to=1), "list of inputs"),
    "a later input": (set_item(*OPERATIONS, 1, "inputs", to=[2]), "1, maximum: inputs: expected values from 0 to 1"),
    "a negative input": (set_item(*OPERATIONS, 1, "inputs", to=[-1]), "1, maximum: inputs: expected"),
    "an input of lists": (set_item(*OPERATIONS, 1, "inputs", to=[[0]]), "expected|supported"),
    "a huge stride": (set_item(*OPERATIONS, 0, "stride", to=[2**62, 1]), "0, Conv2D, sum of products: stride"),
    "huge padding": (set_item(*OPERATIONS, 0, "padding", to=[2**40] * 4), "expected at most"),
    "padding of lists": (set_item(*OPERATIONS, 0, "padding", to=[[1]] * 4), ""),
    "a window outside": (set_item(*OPERATIONS, 1, "rows", to=[[0, 9]]), "1, maximum: rows"),
    "no factor for a divisor": (set_item(*OPERATIONS, 2, "factors", to=[[5, 1, 1]]), "2, average: factors"),
    "factors of numbers": (set_item(*OPERATIONS, 2, "factors", to=[5]), ""),
    "a sum too large": (set_item(*OPERATIONS, 3, "multipliers", to=[2**30, 2**30]), "3, sum: multipliers"),
    "a shift of 0": (set_item(*OPERATIONS, 4, "shift", to=0), "4, product: shift"),
    "a number of 400 digits": (set_item(*OPERATIONS, 4, "multiplier", to=10**399), "4, product: multiplier"),
    "another input shape": (set_item("input_shape", to=[3, 2, 2]), "expected an input of shape"),
    "any input size": (set_item("input_shape", to=[2, None, None]), "expected a whole number, got None"),
    "a string as shape": (set_item("output_shape", to="ab"), "output_shape"),
    "negative outputs": (set_item("output_shape", to=[-1, -6]), "output_shape"),
    "real outputs": (set_item("output_shape", to=[6.0]), "expected a whole number, got 6.0"),
    "float layers of numbers": (set_item("float_layers", to=3), "config: expected"),
    "noise of fewer": (drop("noise", 0), "noise: expected"),
    "noise of numbers": (set_item("noise", to=3), ""),
    "noise of one operation": (set_item("noise", 1, to=[1, 2, 3]), "noise: expected a label"),
    "float weights": (
        tensor("program.0.weights", lambda a: a.astype(np.float32)),
        "weights: expected an array of int8",
    ),
    "weights of a vector": (tensor("program.0.weights", np.ravel), "weights: expected shape"),
    "biases of 64 bits": (
        tensor("program.0.biases", lambda a: a.astype(np.int64)),
        "biases: expected an array of int32",
    ),
    "biases that overflow": (tensor("program.0.biases", lambda a: a * 0 + (2**31 - 1)), "sums up to"),
    "an index outside": (tensor("program.6.index", lambda a: a + 1), "6, copy: index: expected numbers"),
    "a short table": (tensor("program.5.table", lambda a: a[1:]), "5, Tanh, table: table: expected shape"),
    "factors that are infinite": (tensor("program.input.factors", lambda a: a * np.inf), "expected finite"),
    "no factors": (lambda config, tensors: tensors.pop("program.input.factors"), "expected the array 'input.factors'"),
    "another array": (lambda config, tensors: tensors.update({"program.9.x": np.ones(1)}), "arrays of its operations"),
    "another tensor": (lambda config, tensors: tensors.update({"x": np.ones(1)}), "expected tensors of program"),
    "noise as integers": (tensor("noise", lambda a: np.zeros(a.shape, int)), "noise: expected an array of float64"),
    "a large value": (large, f"0, Crop: expected at most {MOST_NUMBERS} numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(path, name):
    edit, message = HOSTILE[name]
    config, tensors, _ = safetensors_file.read(path, "quantized model")
    edit(config, tensors)
    safetensors_file.write(path, "quantized model", config, tensors)
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}: .*{message}"):
        QuantizedModel.load(path)


def test_random_hostile_files_are_refused_or_loaded(path):
    """tests/conformance/files.py loads more of them, and limits memory and time."""
    good, rng, outcomes = path.read_bytes(), random.Random(0), set()
    for _ in range(400):
        path.write_bytes(modified_file(good, rng))
        try:
            outcomes.add(type(QuantizedModel.load(path)))
        except FileError as error:
            assert str(path) in str(error)
            outcomes.add(FileError)
    assert outcomes == {FileError, QuantizedModel}


def test_readers_of_other_kinds_say_which_one_is_right(path, tmp_path):
    with pytest.raises(
        FileError, match=r"got a 'quantized model' file: minidl.quantization.QuantizedModel.load\(path\)"
    ):
        Sequential.load(path)
    with pytest.raises(
        FileError, match=r"got a 'quantized model' file: minidl.quantization.QuantizedModel.load\(path\)"
    ):
        Trainer.resume(path)
    trainer = Trainer(Sequential([Dense(2)], (3,)), "softmax_cross_entropy", SGD(0.1))
    trainer.save_checkpoint(tmp_path / "run")
    trainer.model.save(tmp_path / "model")
    for name, hint in (("run", "Trainer.resume(path).model is the model in it"), ("model", "Sequential.load(path)")):
        with pytest.raises(FileError, match=re.escape(hint)):
            QuantizedModel.load(tmp_path / name)
    with pytest.raises(OSError, match="no such"):
        QuantizedModel.load(tmp_path / "no such")
    with pytest.raises(TypeError, match="custom_objects: expected"):
        QuantizedModel.load(path, 3)


def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path):
    one = p.Quantization(1.0, 0)
    crop = p.Rearrange("0, Crop", (0,), np.zeros(1, np.int32))
    values = p.Value((1, 1, MOST_NUMBERS + 1), one), p.Value((1, 1, 1), one)
    model = by_hand()
    model.program = p.Program(p.QuantizeInput(np.ones(1), np.zeros(1)), values, (crop,))
    with pytest.raises(ValueError, match="0, Crop: expected at most"):
        model.save(tmp_path / "net")
    assert not (tmp_path / "net").exists()
