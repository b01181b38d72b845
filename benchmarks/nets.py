"""The nets that are measured: as minidl models, the same nets in PyTorch, and their multiply-adds.

`python benchmarks/nets.py` lists them.
"""

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD

IMAGE, CLASSES = (1, 28, 28), 10
LR, MOMENTUM = 0.01, 0.9


def lenet5():
    """LeNet-5 for MNIST, as in examples/mnist_lenet.py."""
    return [
        Rescale(1 / 255),
        Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2),
        Conv2D(16, 5), ReLU(), MaxPool2D(2),
        Flatten(),
        Dense(120), ReLU(),
        Dense(84), ReLU(),
        Dense(10),
    ]  # fmt: skip


def cnn():
    """A net of 3x3 convolutions."""
    return [
        Rescale(1 / 255),
        Conv2D(32, 3), ReLU(),
        Conv2D(64, 3), ReLU(), MaxPool2D(2),
        Flatten(),
        Dense(128), ReLU(),
        Dense(10),
    ]  # fmt: skip


def mlp():
    """Dense layers alone, 784-256-128-10."""
    return [Rescale(1 / 255), Flatten(), Dense(256), ReLU(), Dense(128), ReLU(), Dense(10)]


NETS = {"lenet": lenet5, "cnn": cnn, "mlp": mlp}
TITLES = {"lenet": "LeNet-5", "cnn": "CNN 3x3: 32-64, dense 128-10", "mlp": "MLP 784-256-128-10"}


def make_model(layers, input_shape=IMAGE, seed=0):
    """A model of these layers; every call with a seed begins with the same weights."""
    return Sequential(layers, input_shape=input_shape, seed=seed)


def make_trainer(model, num_threads=None):
    """The trainer that every program here uses: SGD with momentum, no metrics."""
    optimizer = SGD(LR, momentum=MOMENTUM)
    return Trainer(model, loss="softmax_cross_entropy", optimizer=optimizer, num_threads=num_threads)


def step_macs(model):
    """Multiply-adds of a train step, per example: forward, weight gradient, input gradient.

    The first layer with weights has no input gradient: nobody asks for that of the images.
    """
    macs = [layer.macs for layer in model.layers]
    first = next(count for count in macs if count)
    return 3 * sum(macs) - first


def has_images(model):
    """Whether the net has layers for which the layout of images matters."""
    return any(isinstance(layer, Conv2D) for layer in model.layers)


def torch_module(model):
    """The same net in PyTorch with the same weights, for images that are scaled already."""
    import torch
    from torch import nn

    def module_of(layer):
        match layer:
            case Rescale():
                return nn.Identity()
            case Conv2D():
                return nn.Conv2d(layer.in_shape[0], layer.filters, layer.kernel_size, padding=layer.padding)
            case MaxPool2D():
                return nn.MaxPool2d(layer.pool_size)
            case Dense():
                return nn.Linear(layer.in_shape[0], layer.units)
            case _:
                return {ReLU: nn.ReLU, Flatten: nn.Flatten}[type(layer)]()

    module = nn.Sequential(*(module_of(layer) for layer in model.layers))
    module.load_state_dict({name: torch.tensor(value) for name, value in model.state_dict().items()})
    return module


def main():
    """Print each net with its parameters and multiply-adds."""
    for name, layers in NETS.items():
        model = make_model(layers())
        parameters = sum(param.value.size for param in model.params.values())
        print(f"{name:6} {TITLES[name]:29} {parameters:9,} parameters, {step_macs(model):10,} multiply-adds an image")


if __name__ == "__main__":
    main()
