"""LeNet-5 with a custom activation in place of ReLU, SiLU or ChannelSwish, trained on scikit-learn's digits in seconds.

Run it with: python train.py, after python setup.py build_ext --inplace
"""

import channel_swish
import numpy as np
import silu

from minidl import Layer, Sequential, Trainer, layers
from minidl.datasets import load_digits
from minidl.initializers import ones
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, Pad2D, Rescale, Upsample2D
from minidl.optimizers import SGD
from minidl.testing import check_layer


class SiLU(Layer):
    """y = x * sigmoid(x), computed by the kernel in silu.pyx. Files and resuming work without further code."""

    def build(self, in_shape):
        self.op = silu.SiLUOp(in_shape, self.dtype)
        return in_shape


class ChannelSwish(Layer):
    """y = x * sigmoid(beta[c] * x) with a learned beta for each channel, computed by the kernel in channel_swish.pyx.

    Parameter: beta (c,), ones, with which the layer is SiLU.
    """

    def build(self, in_shape):
        self.op = channel_swish.ChannelSwishOp(in_shape, self.dtype)
        self.beta = self.param("beta", in_shape[:1], ones)
        return in_shape


def lenet5(activation):
    """Returns the layers of LeNet-5 for images (1, 28, 28), with this activation."""
    return [
        Conv2D(6, 5, padding=2), activation(), MaxPool2D(2),
        Conv2D(16, 5), activation(), MaxPool2D(2),
        Flatten(),
        Dense(120), activation(),
        Dense(84), activation(),
        Dense(10),
    ]  # fmt: skip


def net(activation):
    """Returns LeNet-5 for the 8x8 digits, enlarged to 28x28."""
    enlarge = [Rescale(1 / 16), Upsample2D(3), Pad2D(2)]
    return Sequential([*enlarge, *lenet5(activation)], input_shape=(1, 8, 8), seed=0)


def main():
    """Checks the layers, compares them with the built-in SiLU, and trains a net with each."""
    data = load_digits()
    reference = net(layers.SiLU).predict(data.X_test)
    for activation in (SiLU, ChannelSwish):
        check_layer(activation(), in_shape=(3, 4, 5))
        print(f"{activation.__name__} keeps the contract, and its gradients are right.")

        model = net(activation)
        difference = np.abs(model.predict(data.X_test) - reference).max()
        print(f"Its scores differ from those of the built-in SiLU by at most {difference:.1g}.")

        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.02, momentum=0.9), metrics=["accuracy"])
        trainer.fit(data.X_train, data.y_train, epochs=10)
        print(f"Test accuracy {trainer.evaluate(data.X_test, data.y_test)['accuracy']:.2%}")


if __name__ == "__main__":
    main()
