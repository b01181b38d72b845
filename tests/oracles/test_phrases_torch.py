"""The phrase book of PyTorch: PyTorch's code of every row runs, and rows that claim equal numbers have them."""

import copy

import numpy as np
import pytest
from phrase_books import CLASSES, INPUTS, ROWS, arrays, foreign_program, minidl_names, place, rows
from reference_optimizers import orthogonalized

from minidl import Sequential, Trainer, losses
from minidl.layers import Dense, Dropout, Dropout2D
from minidl.optimizers import SGD

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

__all__ = ["place"]  # a fixture
PATH = "saved"  # of the files that rows write and read


def torch_names():
    nn, X, y = torch.nn, *arrays()
    x, y = torch.tensor(X, requires_grad=True), torch.tensor(y)
    module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    loss_fn = nn.CrossEntropyLoss()
    loss_fn(module(x), y).backward()
    data, optimizer = torch.utils.data, torch.optim.SGD(module.parameters(), lr=0.1)
    torch.save(module.state_dict(), PATH)
    return {
        "torch": torch, "nn": nn, "F": nn.functional, "optim": torch.optim, "np": np, "copy": copy,
        "lr_scheduler": torch.optim.lr_scheduler, "DataLoader": data.DataLoader, "Dataset": data.Dataset,
        "TensorDataset": data.TensorDataset, "random_split": data.random_split,
        "images": torch.zeros(4, 1, 8, 8), "cnn": nn.Sequential(nn.Flatten(), module),
        "X": X, "x": x, "y": y, "images_last": torch.zeros(4, 8, 8, 3), "body": nn.Linear(64, 64), "device": "cpu",
        "module": module, "loss_fn": loss_fn, "loss": loss_fn(module(x), y), "optimizer": optimizer,
        "params": list(module.parameters()), "loader": data.DataLoader(data.TensorDataset(x.detach(), y), 20),
        "path": PATH, "w": torch.empty(32, 16, 3, 3),
        "sampler": data.DistributedSampler(data.TensorDataset(y), num_replicas=2, rank=0), "epoch": 3,
        "state": {name: tensor.numpy() for name, tensor in module.state_dict().items()},
    }  # fmt: skip


@pytest.mark.parametrize("row", rows("PyTorch"))
def test_pytorch_code_runs(row, place):
    for code in row.theirs:
        exec(code, torch_names())


@pytest.mark.oracle("torchvision")
@pytest.mark.parametrize("row", rows("torchvision"))
def test_torchvisions_code_runs(row, place):
    from torchvision import datasets, transforms

    for code in row.theirs:
        exec(code, {"transforms": transforms, "ImageFolder": datasets.ImageFolder})


def torch_layers(row, rng):
    """Returns the layers of a row in PyTorch and in minidl, in float64 and with PyTorch's weights, and a batch."""
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(*(eval(code, torch_names()) for code in row.theirs)).double()
    for shape in INPUTS:
        x = rng.standard_normal((5, *shape))
        try:
            theirs(torch.tensor(x))
            layers = [eval(code, minidl_names()) for code in row.ours]
            ours = Sequential(layers, input_shape=shape, dtype="float64")
        except (RuntimeError, ValueError, IndexError):
            continue
        with torch.no_grad():
            for parameter in theirs.parameters():  # ones and zeros would hide some mistakes
                parameter += 0.1 * torch.randn_like(parameter)
        state = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
        assert [array.shape for array in state.values()] == [array.shape for array in ours.state_dict().values()]
        ours.load_state_dict(dict(zip(ours.state_dict(), state.values(), strict=True)))
        return theirs, ours, x
    raise AssertionError(f"no input for {row.theirs} and {row.ours}")


@pytest.mark.parametrize("row", rows("PyTorch", section="Layers"))
def test_layers_compute_pytorch_numbers(row, place, rng):
    theirs, ours, x = torch_layers(row, rng)
    close = {"rtol": 1e-7, "atol": 1e-7}
    if not isinstance(ours.layers[0], (Dropout, Dropout2D)):
        inputs = torch.tensor(x, requires_grad=True)
        outputs = theirs(inputs)
        np.testing.assert_allclose(ours.forward(x, training=True), outputs.detach(), **close)
        dy = rng.standard_normal(outputs.shape)
        dx = ours.backward(dy)
        outputs.backward(torch.tensor(dy))
        np.testing.assert_allclose(dx, inputs.grad, **close)
        for param, parameter in zip(ours.params.values(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(param.grad, parameter.grad, **close)
        for array, tensor in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
            np.testing.assert_allclose(array, tensor, **close)
    np.testing.assert_allclose(ours.predict(x), theirs.eval()(torch.tensor(x)).detach(), **close)


@pytest.mark.parametrize("row", rows("PyTorch", section="Losses"))
def test_losses_compute_pytorch_numbers(row, place, rng):
    theirs, ours = eval(row.theirs[0], torch_names()), eval(row.ours[0], minidl_names())
    ours = losses.NAMES[ours] if isinstance(ours, str) else ours
    scores = 2 * rng.standard_normal((7, 3))
    targets = {"CrossEntropyLoss": np.arange(7) % 3, "BCEWithLogitsLoss": rng.random((7, 3)).round()}
    y = targets.get(type(theirs).__name__, rng.integers(0, 5, (7, 3)).astype(float))
    x = torch.tensor(scores, requires_grad=True)
    loss = theirs(x, torch.tensor(y))
    loss.backward()
    values, gradient = ours(scores, y)
    assert values.mean() == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(gradient / 7, x.grad, rtol=1e-10, atol=1e-14)


def test_class_weights_are_those_of_pytorch():
    model, (X, y) = Sequential([Dense(CLASSES)], input_shape=(64,), dtype="float64"), arrays()
    weight, bias = (torch.tensor(param.value, requires_grad=True) for param in model.params.values())
    classes = np.arange(1.0, 1 + CLASSES)
    loss = torch.nn.CrossEntropyLoss(torch.tensor(classes))(torch.tensor(X).double() @ weight.T + bias, torch.tensor(y))
    loss.backward()
    trainer = Trainer(model, "softmax_cross_entropy", SGD(1.0))
    trainer.fit(X, y, batch_size=ROWS, class_weight=dict(enumerate(classes)), verbose=0)
    assert trainer.history["loss"][0] == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(model.params["0.bias"].value, -bias.grad, rtol=1e-9)
    np.testing.assert_allclose(model.params["0.weight"].value, (weight - weight.grad).detach(), rtol=1e-9, atol=1e-12)


def in_float64(u, *arguments):
    return torch.from_numpy(orthogonalized(u.numpy(), *arguments))


@pytest.mark.parametrize("row", rows("PyTorch", section="Optimizers", theirs="optim."))
def test_optimizers_take_pytorch_steps(row, place, rng, monkeypatch):
    if "[{" in row.theirs[0]:
        pytest.skip("groups of parameters")
    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", in_float64)  # instead of bfloat16
    model = Sequential([Dense(3, use_bias=False)], input_shape=(4,), dtype="float64")
    param = model.params["0.weight"]
    tensor = torch.tensor(np.array(param.value), requires_grad=True)
    theirs = eval(row.theirs[0], torch_names() | {"params": [tensor]})
    ours = eval(row.ours[0], minidl_names())
    for _ in range(6):
        param.grad = rng.standard_normal((3, 4))
        tensor.grad = torch.tensor(np.array(param.grad))
        theirs.step()
        ours.step(model.params, ours.lr)
        np.testing.assert_allclose(param.value, tensor.detach(), rtol=1e-11, atol=1e-13)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("row", rows("PyTorch", section="Schedules"))
def test_schedules_have_pytorch_rates(row, place):
    names = torch_names()
    schedule, scheduler = eval(row.ours[0], minidl_names()), eval(row.theirs[0], names)
    for step in range(30):
        assert schedule(step) == pytest.approx(names["optimizer"].param_groups[0]["lr"], rel=1e-9), step
        scheduler.step()


@pytest.mark.parametrize("row", rows("PyTorch", section="Initializers"))
def test_initializers_draw_from_pytorch_distributions(row, place):
    torch.manual_seed(0)
    names = torch_names() | {"w": torch.empty(128, 64, 3, 3)}
    exec(row.theirs[0], names)
    theirs = names["w"].numpy()
    ours = eval(row.ours[0], minidl_names())(np.random.default_rng(0), theirs.shape)
    quantiles = np.linspace(0, 1, 11)
    a, b = (np.quantile(array, quantiles) for array in (theirs, ours))
    assert ours.std() == pytest.approx(theirs.std(), rel=0.02, abs=1e-9)
    np.testing.assert_allclose(a[1:-1], b[1:-1], atol=0.05 * theirs.std() + 1e-9)
    if "uniform" in row.theirs[0]:
        np.testing.assert_allclose(a, b, atol=0.05 * theirs.std())


def test_pytorch_program_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(foreign_program("pytorch.md"), {"__name__": "program"})
    assert capsys.readouterr().out == "True\n"
