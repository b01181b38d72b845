"""DRAWS: for each public layer, a function that draws a random case."""

from importlib import import_module
from pathlib import Path

OTHERS = {"case", "every_layer", "losses", "optimizers"}
FAMILIES = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - OTHERS)
DRAWS = {name: draw for family in FAMILIES for name, draw in import_module(f"contract.{family}").DRAWS.items()}
