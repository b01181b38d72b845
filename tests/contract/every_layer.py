"""DRAWS: for each public layer, a function that draws a random case. Exceptions, by what the layer lacks."""

from importlib import import_module
from pathlib import Path

OTHERS = {"case", "every_layer", "losses", "optimizers"}
FAMILIES = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - OTHERS)
DRAWS = {name: draw for family in FAMILIES for name, draw in import_module(f"contract.{family}").DRAWS.items()}

RECURRENT = {"Bidirectional", "GRU", "LSTM", "SimpleRNN"}
# Layers that alone are computed in tiles, also for few examples; the tests hold all others to the blocked layout.
PREDICTED_IN_TILES = RECURRENT | {
    "GroupNorm",
    "LocalResponseNorm",
    "LogSoftmax",
    "RandomCrop",
    "RandomFlip",
    "RandomShift",
    "Reduce",
    "Softmax",
    "Softmin",
}
# Layers with parameters that only tiles have: models with them are trained in tiles.
TRAINED_IN_TILES = RECURRENT | {"ConvTranspose1D", "ConvTranspose2D"}
# Layers that can only end a model, while tests of the table put others after them: see tests/layers/test_outputs.py.
ENDS_MODELS = {"Outputs"}
# Layers without a writer of their own in C: containers, whose layers are written.
WRITTEN_AS_LAYERS = {"Bidirectional", "Block", "Parallel", "Residual", "SqueezeExcite"}
