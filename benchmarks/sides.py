"""The implementations of a training step that train_step.py compares.

Each has `step_loss()`, which runs one step on the first batch and returns its loss, and `run(steps)`.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from measure import limit_threads
from nets import CLASSES, LR, MOMENTUM, Net, has_images, make_trainer

from minidl.layers import Dense


@dataclass
class Task:
    """The work of every side: a net, random images for `batches` batches, and a limit on the number of threads."""

    net: Net
    batch_size: int
    batches: int
    threads: int

    def __post_init__(self):
        rng = np.random.default_rng(0)
        n = self.batch_size * self.batches
        self.X = rng.integers(0, 256, (n, *self.net.image), dtype=np.uint8)
        self.y = rng.integers(0, CLASSES, n)

    def model(self):
        """Returns the net with its initial weights."""
        return self.net.model()

    @cached_property
    def scaled(self):
        """The images as float32 from 0 to 1, for sides that do not take uint8."""
        return self.X.astype(np.float32) / 255

    def cut(self, *arrays):
        """Returns a list of batches; each is a tuple with a slice of every array."""
        pieces = [[a[i : i + self.batch_size] for i in range(0, len(a), self.batch_size)] for a in arrays]
        return list(zip(*pieces, strict=True))


class MinidlFit:
    """`fit`: the steps of one shuffled epoch, its history included; gathers batches from uint8 and scales them."""

    def __init__(self, task, num_threads=None):
        self.task, self.trainer = task, make_trainer(task.model(), num_threads)

    def step_loss(self):
        return self._fit(1)["loss"][-1]

    def run(self, steps):
        self._fit(steps)

    def _fit(self, steps):
        size = self.task.batch_size
        n = steps * size
        return self.trainer.fit(self.task.X[:n], self.task.y[:n], epochs=1, batch_size=size, verbose=0)


class MinidlTrainBatch:
    """`train_batch`: one Python call per step, on uint8."""

    def __init__(self, task):
        self.trainer, self.batches = make_trainer(task.model()), task.cut(task.X, task.y)

    def step_loss(self):
        return self.trainer.train_batch(*self.batches[0])

    def run(self, steps):
        for xb, yb in itertools.islice(itertools.cycle(self.batches), steps):
            self.trainer.train_batch(xb, yb)


class Prediction:
    """The base class of sides whose steps predict the same batch: `predict()` returns its scores."""

    def run(self, steps):
        for _ in range(steps):
            self.predict()


class MinidlPredict(Prediction):
    """`model.predict` of a batch."""

    def __init__(self, model, images, num_threads=None):
        self.model, self.images, self.num_threads = model, images, num_threads

    def predict(self):
        return self.model.predict(self.images, num_threads=self.num_threads)


class OnnxruntimePredict(Prediction):
    """An InferenceSession of an ONNX file, with its default optimizations, on the same batch."""

    def __init__(self, path, images, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = {self.session.get_inputs()[0].name: images}

    def predict(self):
        return self.session.run(None, self.inputs)[0]


def quantize_by_onnxruntime(model, X, folder, by_channel):
    """Returns the path of an ONNX file in a folder: a model in 8-bit integers, by onnxruntime's static quantization.

    It calibrates on examples X, and has one scale for each weight, or, as minidl, one for each of its filters.
    """
    from onnxruntime import quantization

    import minidl.onnx

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.batches = iter({"input": batch} for batch in np.array_split(X.astype(np.float32), 10))

        def get_next(self):
            return next(self.batches, None)

    minidl.onnx.export(model, folder / "float.onnx")
    quantization.quant_pre_process(folder / "float.onnx", folder / "ready.onnx", skip_symbolic_shape=True)
    quantization.quantize_static(folder / "ready.onnx", folder / "int8.onnx", Reader(), per_channel=by_channel)
    return folder / "int8.onnx"


def mlp_classifier(hidden, lr, batch_size, seed=0, **options):
    """Returns an MLPClassifier with the same SGD as minidl, without its default L2 term."""
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        hidden,
        solver="sgd",
        learning_rate_init=lr,
        momentum=MOMENTUM,
        nesterovs_momentum=False,
        alpha=0,
        batch_size=batch_size,
        random_state=seed,
        **options,
    )


class ScikitLearn:
    """MLPClassifier: `partial_fit`, one epoch in its own shuffled order."""

    def __init__(self, task):
        limit_threads(task.threads)
        self.task, model = task, task.model()
        self.X = task.scaled.reshape(len(task.X), -1)
        dense = [layer for layer in model.layers if isinstance(layer, Dense)]
        self.classifier = mlp_classifier([layer.units for layer in dense[:-1]], LR, task.batch_size)
        self.classifier.partial_fit(self.X[: task.batch_size], task.y[: task.batch_size], classes=range(CLASSES))
        for i, layer in enumerate(dense):
            self.classifier.coefs_[i][:] = layer.params["weight"].value.T
            self.classifier.intercepts_[i][:] = layer.params["bias"].value

    def step_loss(self):
        self.run(1)
        return self.classifier.loss_

    def run(self, steps):
        n = steps * self.task.batch_size
        self.classifier.partial_fit(self.X[:n], self.task.y[:n])


def torch_steps(mode):
    """Returns a function that makes the side of a PyTorch mode; PyTorch is imported only then."""

    def make(task):
        from torch_steps import TorchSteps

        return TorchSteps(task, mode)

    return make


def jax_steps(task):
    from jax_steps import JaxSteps

    return JaxSteps(task)


MODES = {
    "minidl fit": MinidlFit,
    "minidl train_batch": MinidlTrainBatch,
    "PyTorch eager": torch_steps("eager"),
    "PyTorch eager channels_last": torch_steps("eager channels_last"),
    "PyTorch compile": torch_steps("compile"),
    "PyTorch compile channels_last": torch_steps("compile channels_last"),
    "scikit-learn": ScikitLearn,
    "JAX jit": jax_steps,
}


def chosen_names(names, words, model):
    """Returns the names that contain one of the words and apply to the model."""
    names = [name for name in names if any(word.lower() in name.lower() for word in words)]
    unfit = "scikit-learn" if has_images(model) else "channels_last"
    return [name for name in names if unfit not in name]


def ready_sides(makers, result, expected, rtol, atol=0.0):
    """Returns the sides that `makers` make, by name, each after its first step. Skips one that fails, with a notice.

    result: a function of a side. Raises AssertionError for an unexpected result: the side does not do the same work.
    """
    ready = {}
    for name, make in makers.items():
        if "compile" in name:
            print(f"  {name}: compiling, which may take minutes ...", flush=True)
        try:
            side = make()
            found = result(side)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"  {name} is skipped ({reason})", flush=True)
            continue
        if not np.allclose(found, expected, rtol, atol):
            raise AssertionError(f"the first result is {found} in {name}, {expected} in minidl")
        ready[name] = side
    return ready


def prepare(words, task):
    """Returns the chosen sides by name, ready to train: the first loss of each is minidl's. See ready_sides."""
    makers = {mode: partial(MODES[mode], task) for mode in chosen_names(MODES, words, task.model())}
    return ready_sides(makers, lambda side: side.step_loss(), MinidlTrainBatch(task).step_loss(), rtol=1e-4)
