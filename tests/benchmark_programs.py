"""Where the programs in benchmarks/ are, and what tests ask of their figures."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


def all_positive(numbers):
    return all(number > 0 for number in numbers)
