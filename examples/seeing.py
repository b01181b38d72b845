"""Plots of a training run
==========================

Learning curves, filters, feature maps, mistakes, saliency, and the gradient through a max-pool of a small net.

Run it with: `python examples/seeing.py [folder]`

It trains on the embedded digits for some seconds and writes eight PNG files into the folder, by default `pictures`. It
needs matplotlib: `pip install "minidl[plot]"`. `docs/how-to/plots.md` describes each plot.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

from minidl import Sequential, Trainer, plots
from minidl.datasets import load_digits
from minidl.layers import Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD, AdamW
from minidl.schedules import Cosine

EPOCHS, BATCH_SIZE = 40, 64

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("folder", nargs="?", type=Path, default=Path("pictures"), help="default: pictures")
folder = parser.parse_args().folder
if find_spec("matplotlib") is None:
    raise SystemExit('matplotlib is not installed: pip install "minidl[plot]"')


def save(figure, name):
    """Writes a figure into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=150)


# %%
# The net
# -------
# One convolution with eight filters, and dropout. A fifth of the training digits are held out for validation.

data = load_digits()
model = Sequential(
    [
        Rescale(1 / 16),
        Conv2D(8, 5, padding=2), ReLU(), MaxPool2D(2),
        Flatten(),
        Dropout(0.3), Dense(32), ReLU(),
        Dense(10),
    ],
    input_shape=(1, 8, 8),
    seed=0,
)  # fmt: skip
steps = EPOCHS * -(-len(data.X_train) * 4 // 5 // BATCH_SIZE)
optimizer = AdamW(Cosine(0.005, total_steps=steps, min_lr=1e-5), weight_decay=0.01)
trainer = Trainer(model, "softmax_cross_entropy", optimizer, metrics=["accuracy"])
history = trainer.fit(data.X_train, data.y_train, epochs=EPOCHS, batch_size=BATCH_SIZE, validation_split=0.2, verbose=0)
print(f"Test accuracy {trainer.evaluate(data.X_test, data.y_test)['accuracy']:.2%}")

# %%
# Learning curves
# ---------------
# The history of a fit draws itself. With dropout, the loss is larger in training than in validation.

save(history.plot(), "history")

# %%
# What the net has learned
# ------------------------
# The filters of the convolution: negative weights are blue, positive ones red.

save(plots.filters(model), "filters")

# %%
# Three digits, and what the eight filters find in them. Layer 2 is the ReLU after the convolution.

save(plots.feature_maps(model, data.X_test[:3], layer=2), "feature_maps")

# %%
# Mistakes
# --------
# Misclassified test digits with the predicted and the true class, the most confident mistakes first.

save(plots.misclassified(model, data.X_test, data.y_test), "misclassified")

# %%
# The confusion matrix: how often each digit was predicted as which.

save(plots.confusion_matrix(model, data.X_test, data.y_test), "confusion_matrix")

# %%
# What a score depends on
# -----------------------
# Saliency is the absolute gradient of the score with respect to each pixel.

save(plots.saliency(model, data.X_test[:6]), "saliency")

# %%
# Grad-CAM shows which regions of a feature map count for the class, here the true one.

save(plots.grad_cam(model, data.X_test[:6], data.y_test[:6]), "grad_cam")

# %%
# The gradient through a max-pool
# -------------------------------
# In another net, the windows of the pool overlap: a pixel that wins several windows gets the sum of their gradients.

overlapping = Sequential(
    [
        Rescale(1 / 16),
        Conv2D(8, 4, padding=1), ReLU(), MaxPool2D(3, stride=2),
        Flatten(),
        Dense(32), ReLU(),
        Dense(10),
    ],
    input_shape=(1, 8, 8),
    seed=0,
)  # fmt: skip
other = Trainer(overlapping, "softmax_cross_entropy", SGD(0.05, momentum=0.9))
other.fit(data.X_train, data.y_train, epochs=1, verbose=0)
save(plots.pool_routing(overlapping, data.X_test[:64], data.y_test[:64]), "pool_routing")

print(f"The pictures are in {folder}")
