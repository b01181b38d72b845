"""A custom layer in NumPy
==========================

A layer that multiplies each channel by a learned number: written, checked against finite differences, and trained.

Run it with: `python examples/custom_layer.py`
"""

from minidl import Layer, Sequential, Trainer
from minidl.datasets import load_digits
from minidl.initializers import ones
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD
from minidl.testing import check_layer

# %%
# The layer
# ---------
# `build` makes the parameters, `forward` computes the outputs, `backward` the gradients.


class Scale(Layer):
    """Multiplies each channel by a learned number: y[n, c] = gain[c] * x[n, c]."""

    def build(self, in_shape):
        """Creates the gains, (c,), for inputs (c, h, w); the output has the shape of the input."""
        self.gain = self.param("gain", (in_shape[0],), ones)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x  # for backward; without training, a layer stores nothing
        return x * self.gain.value[:, None, None]

    def backward(self, dy):
        self.gain.grad[:] = (dy * self.x).sum(axis=(0, 2, 3))  # a plain sum over the batch
        return dy * self.gain.value[:, None, None]


# %%
# Check and training
# ------------------
# `check_layer` compares the gradients with finite differences, and finds common mistakes.


def main():
    """Checks the layer, then trains a net that combines it with built-in layers."""
    check_layer(Scale(), in_shape=(3, 4, 5))
    print("Scale keeps the contract of a layer, and its gradients are right.")

    data = load_digits()
    model = Sequential(
        [
            Rescale(1 / 16),
            Conv2D(16, 3, padding=1), Scale(), ReLU(), MaxPool2D(2),
            Conv2D(32, 3, padding=1), Scale(), ReLU(), MaxPool2D(2),
            Flatten(),
            Dense(10),
        ],
        input_shape=(1, 8, 8),
        seed=0,
    )  # fmt: skip
    trainer = Trainer(
        model,
        loss="softmax_cross_entropy",
        optimizer=SGD(0.05, momentum=0.9),
        metrics=["accuracy"],
    )
    trainer.fit(data.X_train, data.y_train, epochs=15, batch_size=64, verbose=0)
    accuracy = trainer.evaluate(data.X_test, data.y_test)["accuracy"]
    print(f"Test accuracy {accuracy:.2%}; the gains of the first Scale:")
    print(model.params["2.gain"].value.round(2))


if __name__ == "__main__":
    main()
