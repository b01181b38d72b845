"""The benchmarked nets: as minidl models and PyTorch modules, with their multiply-adds.

`python benchmarks/nets.py` lists them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from minidl import Sequential, Trainer
from minidl.layers import (
    AvgPool2D,
    BatchNorm2D,
    Block,
    ChannelShuffle,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Flatten,
    GlobalAvgPool2D,
    GlobalMaxPool2D,
    LeakyReLU,
    MaxPool2D,
    Normalize,
    Parallel,
    Permute,
    PReLU,
    RandomFlip,
    RandomShift,
    ReLU,
    Rescale,
    Residual,
    SiLU,
    Tanh,
)
from minidl.optimizers import SGD

IMAGE, COLOUR, CLASSES = (1, 28, 28), (3, 32, 32), 10
LR, MOMENTUM = 0.01, 0.9
MOBILENET_V2 = (  # expansion, filters, repeats, stride
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def lenet5():
    """Returns the layers of LeNet-5 for MNIST, as in examples/models.py."""
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
    """Returns the layers of a net of 3x3 convolutions."""
    return [
        Rescale(1 / 255),
        Conv2D(32, 3), ReLU(),
        Conv2D(64, 3), ReLU(), MaxPool2D(2),
        Flatten(),
        Dense(128), ReLU(),
        Dense(10),
    ]  # fmt: skip


def mlp():
    """Returns the layers of an MLP, 784-256-128-10."""
    return [Rescale(1 / 255), Flatten(), Dense(256), ReLU(), Dense(128), ReLU(), Dense(10)]


def vgg():
    """Returns the layers of a small VGG with batch norm after every convolution."""
    layers = [Rescale(1 / 255)]
    for filters in (32, 64, 128):
        for _ in range(2):
            layers += [Conv2D(filters, 3, padding=1), BatchNorm2D(), ReLU()]
        layers.append(MaxPool2D(2))
    return [*layers, Flatten(), Dense(10)]


def _normed(filters, kernel=3, stride=1):
    """Returns a convolution with batch norm, which makes a bias redundant."""
    return [Conv2D(filters, kernel, stride, padding=kernel // 2, use_bias=False), BatchNorm2D()]


def _depthwise(multiplier):
    return DepthwiseConv2D(3, padding=1, depth_multiplier=multiplier)


def _residual_stages(widths, blocks):
    """Returns residual blocks of two 3x3 convolutions; a stage, except the first, begins with stride 2."""
    layers = []
    for filters in widths:
        for block in range(blocks):
            shrinks = filters > widths[0] and block == 0
            body = [*_normed(filters, 3, 2 if shrinks else 1), ReLU(), *_normed(filters)]
            layers += [Residual(*body, shortcut=_normed(filters, 1, 2) if shrinks else None), ReLU()]
    return layers


def resnet20():
    """Returns the layers of ResNet-20 for CIFAR-10: He et al. (2015), section 4.2, with projections (option B)."""
    stages = _residual_stages((16, 32, 64), 3)
    return [Rescale(1 / 255), *_normed(16), ReLU(), *stages, GlobalAvgPool2D(), Dense(10)]


def resnet18():
    """Returns the layers of ResNet-18 for ImageNet: He et al. (2015), table 1, as torchvision's."""
    stem = [*_normed(64, 7, 2), ReLU(), MaxPool2D(3, 2, padding=1)]
    return [Rescale(1 / 255), *stem, *_residual_stages((64, 128, 256, 512), 2), GlobalAvgPool2D(), Dense(1000)]


def resnet50():
    """Returns the layers of ResNet-50 for ImageNet: He et al. (2015), table 1, with strides as torchvision's."""
    layers, channels = [Rescale(1 / 255), *_normed(64, 7, 2), ReLU(), MaxPool2D(3, 2, padding=1)], 64
    for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if filters > 64 and block == 0 else 1
            body = [*_normed(filters, 1), ReLU(), *_normed(filters, 3, stride), ReLU(), *_normed(4 * filters, 1)]
            shortcut = _normed(4 * filters, 1, stride) if channels < 4 * filters or stride > 1 else None
            layers, channels = [*layers, Residual(*body, shortcut=shortcut), ReLU()], 4 * filters
    return [*layers, GlobalAvgPool2D(), Dense(1000)]


def mobilenet():
    """Returns the layers of MobileNet with half its filters, for small images, as in examples/models.py."""
    layers = [Rescale(1 / 255), *_normed(16), ReLU()]
    strides = [(32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), *[(256, 1)] * 5, (512, 2), (512, 1)]
    for filters, stride in strides:
        layers += [DepthwiseConv2D(3, stride, padding=1, use_bias=False), BatchNorm2D(), ReLU()]
        layers += [*_normed(filters, 1), ReLU()]
    return [*layers, GlobalAvgPool2D(), Dense(10)]


def mobilenet_v2():
    """Returns the layers of MobileNetV2 for ImageNet: Sandler et al. (2018), table 2, with ReLU instead of ReLU6."""
    layers, channels = [Rescale(1 / 255), *_normed(32, 3, 2), ReLU()], 32
    for expansion, filters, repeats, stride in MOBILENET_V2:
        for step in [stride] + [1] * (repeats - 1):
            body = [*_normed(expansion * channels, 1), ReLU()] if expansion > 1 else []
            body += [DepthwiseConv2D(3, step, padding=1, use_bias=False), BatchNorm2D(), ReLU(), *_normed(filters, 1)]
            layers += [Residual(*body)] if step == 1 and filters == channels else body
            channels = filters
    return [*layers, *_normed(1280, 1), ReLU(), GlobalAvgPool2D(), Dense(1000)]


def traffic_signs():
    """Returns the layers of a small classifier of traffic signs: three convolutions."""
    body = [Conv2D(16, 3), ReLU(), MaxPool2D(2), Conv2D(32, 3), ReLU(), MaxPool2D(2), Conv2D(64, 3), ReLU()]
    return [Rescale(1 / 255), *body, Flatten(), Dense(43)]


def keras_mnist():
    """Returns the layers of Keras's first example of a CNN, in inference."""
    body = [Conv2D(32, 3), ReLU(), MaxPool2D(2), Conv2D(64, 3), ReLU(), MaxPool2D(2)]
    return [Rescale(1 / 255), *body, Flatten(), Dense(10)]


def cifar_cnn():
    """Returns the layers of the CNN of PyTorch's tutorial on CIFAR-10."""
    body = [Conv2D(6, 5), ReLU(), MaxPool2D(2), Conv2D(16, 5), ReLU(), MaxPool2D(2), Flatten()]
    return [Rescale(1 / 255), *body, Dense(120), ReLU(), Dense(84), ReLU(), Dense(10)]


def landmarks():
    """Returns the layers of a net of five facial landmarks with PReLU, as the last one of MTCNN."""
    body = [Conv2D(32, 3), PReLU(), MaxPool2D(3, 2), Conv2D(64, 3), PReLU(), MaxPool2D(3, 2)]
    body += [Conv2D(64, 3), PReLU(), MaxPool2D(2), Conv2D(128, 2), PReLU(), Flatten(), Dense(256), PReLU()]
    return [Rescale(1 / 255), *body, Dense(10)]


def policy():
    """Returns the layers of a robot's policy, an MLP."""
    return [Dense(512), Tanh(), Dense(256), Tanh(), Dense(128), Tanh(), Dense(12)]


def text_lines():
    """Returns the layers of a convolutional net that reads lines of text."""
    layers = [Rescale(1 / 255)]
    for filters, pool in ((32, 2), (64, 2), (128, (2, 1)), (128, (2, 1))):
        layers += [*_normed(filters), ReLU(), MaxPool2D(pool)]
    return [*layers, AvgPool2D((2, 1)), Conv2D(97, 1)]


@dataclass(frozen=True)
class Net:
    """A benchmarked net: its title, a function that returns its layers, and its image shape."""

    title: str
    layers: Callable
    image: tuple = IMAGE

    def model(self):
        """Returns a new model of this net; every call starts from the same weights."""
        return make_model(self.layers(), self.image)


NETS = {
    "lenet": Net("LeNet-5", lenet5),
    "cnn": Net("CNN 3x3: 32-64, dense 128-10", cnn),
    "mlp": Net("MLP 784-256-128-10", mlp),
    "vgg": Net("VGG with batch norm, 3x32x32", vgg, COLOUR),
    "resnet20": Net("ResNet-20, 3x32x32", resnet20, COLOUR),
}
DEEP_NETS = {  # measured in inference, and in training if asked for
    "mobilenet": Net("MobileNet x0.5, 3x32x32", mobilenet, COLOUR),
    "mobilenet-v2": Net("MobileNetV2, 3x64x64", mobilenet_v2, (3, 64, 64)),
    "resnet18": Net("ResNet-18, 3x64x64", resnet18, (3, 64, 64)),
    "resnet18-224": Net("ResNet-18, 3x224x224", resnet18, (3, 224, 224)),
    "resnet50-224": Net("ResNet-50, 3x224x224", resnet50, (3, 224, 224)),
}
SMALL_NETS = {  # so little work that a second thread may cost more than it gives
    "signs": Net("traffic signs, 3x30x30", traffic_signs, (3, 30, 30)),
    "keras-mnist": Net("Keras's CNN for MNIST", keras_mnist),
    "cifar": Net("CNN for CIFAR-10", cifar_cnn, COLOUR),
    "landmarks": Net("landmarks with PReLU, 3x48x48", landmarks, (3, 48, 48)),
    "policy": Net("MLP 48-512-256-128-12", policy, (48,)),
    "text": Net("lines of text, 1x32x160", text_lines, (1, 32, 160)),
}
LAYERS = {  # of one layer each
    "depthwise-x4": Net("depthwise 3x3, multiplier 4", lambda: [_depthwise(4)], (198, 28, 28)),
    "depthwise-x2": Net("depthwise 3x3, multiplier 2", lambda: [_depthwise(2)], (32, 56, 56)),
    "grouped": Net("1x1 to 198 in 3 groups", lambda: [Conv2D(198, 1, groups=3)], (792, 28, 28)),
    "grouped-3x3": Net("3x3 to 36 in 3 groups", lambda: [Conv2D(36, 3, padding=1, groups=3)], (36, 28, 28)),
    "prelu": Net("PReLU", lambda: [PReLU()], (64, 112, 112)),
    "leaky-relu": Net("LeakyReLU", lambda: [LeakyReLU()], (64, 112, 112)),
    "permute": Net("Permute to channels first", lambda: [Permute((2, 0, 1))], (224, 224, 3)),
    "permute-back": Net("Permute to channels last", lambda: [Permute((1, 2, 0))], (64, 56, 56)),
    "concat": Net("Concat of the input with itself", lambda: [Parallel([], [])], (58, 56, 56)),
    "shuffle": Net("ChannelShuffle in 2 groups", lambda: [ChannelShuffle(2)], (116, 28, 28)),
}
LARGE_NETS = NETS | DEEP_NETS  # what inference.py measures unless others are named
ALL_NETS = LARGE_NETS | SMALL_NETS | LAYERS


def make_model(layers, input_shape=IMAGE, seed=0):
    """Returns a model of these layers; the initial weights depend only on the seed."""
    return Sequential(layers, input_shape=input_shape, seed=seed)


def make_trainer(model, num_threads=None, distributed=None):
    """Returns the trainer that all benchmarks use: SGD with momentum, no metrics."""
    loss, optimizer = "softmax_cross_entropy", SGD(LR, momentum=MOMENTUM)
    return Trainer(model, loss=loss, optimizer=optimizer, num_threads=num_threads, distributed=distributed)


def leaves(model):
    """Returns the layers of a model; containers are replaced by the layers in them."""
    return [leaf for layer in model.layers for leaf in layer.leaves()]


def step_macs(model):
    """Returns the multiply-adds of a training step, per example: forward, weight gradient, input gradient.

    The first layer with weights has no input gradient, because the gradient of the images is not needed.
    """
    macs = [leaf.macs for leaf in leaves(model)]
    first = next((count for count in macs if count), 0)
    return 3 * sum(macs) - first


def has_images(model):
    """True if the net has layers for which the image layout matters."""
    return any(isinstance(layer, Conv2D) for layer in leaves(model))


def torch_module(model):
    """Returns the same net in PyTorch, with the same weights, for images that are already scaled and augmented."""
    import torch
    from torch import nn

    class Sum(nn.Module):
        """Residual block."""

        def __init__(self, body, shortcut):
            super().__init__()
            self.body, self.shortcut = chain(body), chain(shortcut)

        def forward(self, x):
            return self.body(x) + self.shortcut(x)

    def chain(layers):
        return nn.Sequential(*(module_of(layer) for layer in layers))

    def module_of(layer):
        match layer:
            case Rescale() | Normalize() | RandomShift() | RandomFlip():
                return nn.Identity()
            case Block():
                return chain(layer.layers)
            case DepthwiseConv2D():
                channels = layer.in_shape[0]
                sizes = channels, channels, layer.kernel_size, layer.stride, layer.padding
                return nn.Conv2d(*sizes, groups=channels, bias=layer.use_bias)
            case Conv2D():
                sizes = layer.in_shape[0], layer.filters, layer.kernel_size, layer.stride
                return nn.Conv2d(*sizes, padding=layer.padding, bias=layer.use_bias)
            case BatchNorm2D():
                return nn.BatchNorm2d(layer.in_shape[0], layer.eps, layer.momentum)
            case MaxPool2D():
                return nn.MaxPool2d(layer.pool_size, layer.stride, layer.padding)
            case GlobalAvgPool2D():
                return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
            case GlobalMaxPool2D():
                return nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten())
            case Dense():
                return nn.Linear(layer.in_shape[0], layer.units, layer.use_bias)
            case Residual():
                return Sum(**layer.named_branches())
            case _:
                return {ReLU: nn.ReLU, SiLU: nn.SiLU, Flatten: nn.Flatten}[type(layer)]()

    module = chain(model.layers)
    module.load_state_dict({name: torch.tensor(value) for name, value in model.state_dict().items()})
    return module


def main():
    """Prints each net with its parameters and multiply-adds."""
    for name, net in ALL_NETS.items():
        model = net.model()
        parameters = sum(param.value.size for param in model.params.values())
        print(f"{name:12} {net.title:29} {parameters:10,} parameters, {step_macs(model):13,} multiply-adds an image")


if __name__ == "__main__":
    main()
