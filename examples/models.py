"""Well-known architectures
===========================

LeNet-5, a small VGG, ResNet-20 and MobileNet as functions that return a `Sequential`, to read, to change and to train.

Run it with: `python examples/models.py` (prints a summary of each)

The nets take images from 0 to 255 and return a score per class. Their sizes are compared with published ones in
`tests/test_example_models.py`.
"""

from minidl import Sequential
from minidl.layers import (
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    MaxPool2D,
    ReLU,
    Rescale,
    Residual,
)


def lenet5(classes=10, input_shape=(1, 28, 28), seed=0):
    """LeNet-5 for MNIST, with max-pooling and ReLU in place of its subsampling and tanh: 61,706 parameters.

    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: "Gradient-based learning applied to document recognition" (1998).
    """
    return Sequential(
        [
            Rescale(1 / 255),
            Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2),
            Conv2D(16, 5), ReLU(), MaxPool2D(2),
            Flatten(),
            Dense(120), ReLU(),
            Dense(84), ReLU(),
            Dense(classes),
        ],
        input_shape,
        seed,
    )  # fmt: skip


def mnist_cnn(classes=10, input_shape=(1, 28, 28), seed=0):
    """The net of the MNIST examples of PyTorch and of Keras (mnist_cnn.py): 1,199,882 parameters."""
    return Sequential(
        [
            Rescale(1 / 255),
            Conv2D(32, 3), ReLU(),
            Conv2D(64, 3), ReLU(), MaxPool2D(2), Dropout(0.25),
            Flatten(),
            Dense(128), ReLU(), Dropout(0.5),
            Dense(classes),
        ],
        input_shape,
        seed,
    )  # fmt: skip


def conv_norm(filters, kernel_size=3, stride=1):
    """Returns a convolution followed by batch norm, which makes a bias redundant."""
    convolution = Conv2D(filters, kernel_size, stride, padding=kernel_size // 2, use_bias=False)
    return [convolution, BatchNorm2D()]


def vgg_bn(classes=10, input_shape=(3, 32, 32), widths=((32, 32), (64, 64), (128, 128)), seed=0):
    """A small VGG: groups of 3x3 convolutions with batch norm, max-pooling after each group: 288,746 parameters.

    widths: the filters of each convolution, group by group. VGG-16, without its three dense layers, is
        vgg_bn(widths=((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)).

    K. Simonyan, A. Zisserman: "Very deep convolutional networks for large-scale image recognition" (2015).
    """
    layers = [Rescale(1 / 255)]
    for group in widths:
        for filters in group:
            layers += [*conv_norm(filters), ReLU()]
        layers.append(MaxPool2D(2))
    return Sequential([*layers, GlobalAvgPool2D(), Dense(classes)], input_shape, seed)


def residual_block(filters, stride=1):
    """Returns relu(body(x) + x); if the body changes the shape, a 1x1 convolution of x replaces x."""
    body = [*conv_norm(filters, stride=stride), ReLU(), *conv_norm(filters)]
    shortcut = conv_norm(filters, kernel_size=1, stride=stride) if stride > 1 else None
    return [Residual(*body, shortcut=shortcut), ReLU()]


def resnet20(classes=10, input_shape=(3, 32, 32), blocks=3, seed=0):
    """The residual net for CIFAR-10 with 20 layers: 272,474 parameters, 2,752 of them in its two shortcuts of 1x1.

    blocks: the number per width, for 6 * blocks + 2 layers: 5 for ResNet-32, 9 for ResNet-56.

    K. He, X. Zhang, S. Ren, J. Sun: "Deep residual learning for image recognition" (2015), section 4.2; these shortcuts
    are its option B.
    """
    layers = [Rescale(1 / 255), *conv_norm(16), ReLU()]
    for filters in (16, 32, 64):
        for block in range(blocks):
            layers += residual_block(filters, stride=2 if filters > 16 and block == 0 else 1)
    return Sequential([*layers, GlobalAvgPool2D(), Dense(classes)], input_shape, seed)


def separable(filters, stride=1):
    """Returns a depthwise separable convolution: 3x3 within each channel, then 1x1 across the channels."""
    depthwise = DepthwiseConv2D(3, stride, padding=1, use_bias=False)
    return Block(depthwise, BatchNorm2D(), ReLU(), *conv_norm(filters, kernel_size=1), ReLU())


def mobilenet(classes=10, input_shape=(3, 32, 32), width=0.5, first_stride=1, seed=0):
    """MobileNet (version 1), for small images: 823,722 parameters.

    width: a factor for all numbers of filters; first_stride: 2 for large images. The paper's net is mobilenet(1000,
        (3, 224, 224), width=1.0, first_stride=2), or with a smaller width.

    A. Howard et al.: "MobileNets: efficient convolutional neural networks for mobile vision applications" (2017).
    """
    strides = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    layers = [Rescale(1 / 255), *conv_norm(round(32 * width), stride=first_stride), ReLU()]
    layers += [separable(round(filters * width), stride) for filters, stride in strides]
    return Sequential([*layers, GlobalAvgPool2D(), Dense(classes)], input_shape, seed)


MODELS = {"lenet5": lenet5, "mnist_cnn": mnist_cnn, "vgg_bn": vgg_bn, "resnet20": resnet20, "mobilenet": mobilenet}


def main():
    """Prints a summary of each net."""
    for name, model in MODELS.items():
        print(f"{name}\n{model().summary()}\n")


if __name__ == "__main__":
    main()
