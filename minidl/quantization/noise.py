"""Noise: what each operation of a quantized net loses on calibration data, and what helps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minidl.quantization import evaluation
from minidl.quantization.graph import Node, evaluate
from minidl.quantization.program import HIGH, LOW, Program, SumOfProducts
from minidl.quantization.ranges import dequantized
from minidl.utils.arrays import Array

SAME = 1e-9  # part of the noise of the inputs that is a rounding of its sum
MANY = 0.001  # share of numbers beyond the range that the text mentions


@dataclass(frozen=True)
class Noise:
    """What one operation loses.

    label: the layers that it comes from; of the input: "". snr: the ratio of signal and noise of its output in dB,
    10 log10(sum of x**2 / sum of (dequantized x - x)**2), for the float values x. added: its noise over its signal,
    less that of its noisiest input. beyond: the share of float values beyond the range. weight_bytes: of weights and
    biases.
    """

    label: str
    kind: str
    snr: float
    added: float
    beyond: float
    weight_bytes: int


def measure(
    program: Program, nodes: Sequence[Node], places: Mapping[Node, int], batches: Iterable[Array]
) -> tuple[Noise, ...]:
    """Returns the noise of the nodes' operations, in order, over batches of examples (n, c, h, w)."""
    sums = {node: np.zeros(4) for node in nodes}  # of signal, noise, numbers beyond the range, and numbers
    for x in batches:
        integers, floats = evaluation.run(program, x), evaluate(nodes, x)
        for node in nodes:
            made, real = program.values[places[node]].quantization, floats[node].astype(np.float64)
            low, high = dequantized(np.array([LOW, HIGH]), made) + np.array([-1, 1]) * made.scale
            error = dequantized(integers[places[node]], made) - real
            beyond = ((real < low) | (real > high)).sum()
            sums[node] += [np.square(real).sum(), np.square(error).sum(), beyond, real.size]
    ratios = {node: _decibels(signal, noise) for node, (signal, noise, _, _) in sums.items()}
    return tuple(_noise(program, node, places[node], ratios, sums[node]) for node in nodes)


def _noise(program: Program, node: Node, place: int, ratios: Mapping[Node, float], sums: Array) -> Noise:
    operation = program.operations[place - 1] if place else None
    before = min((ratios[x] for x in node.inputs), default=math.inf)
    added = _share(ratios[node]) - _share(before)
    size = 0
    if isinstance(operation, SumOfProducts):
        size = operation.weights.nbytes + operation.biases.nbytes
    kind = "input" if operation is None else operation.kind
    return Noise(node.label, kind, ratios[node], added, float(sums[2] / sums[3]), size)


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _share(decibels: float) -> float:
    """Returns noise over signal."""
    return math.inf if decibels == -math.inf else float(10 ** (-decibels / 10))


def advice(noise: Sequence[Noise]) -> str:
    """Returns in a sentence or two which operation loses most, and what to do; "" if no noise is known."""
    if not noise:
        return ""
    first, *others = noise
    if not others:
        return "The program computes nothing."
    if others[-1].snr == math.inf:
        return "The outputs are exact on the calibration data."
    worst = max(others, key=lambda one: one.added if math.isfinite(one.added) else -math.inf)
    inputs = "are exact" if first.snr == math.inf else f"have {first.snr:.1f} dB"
    text = f"The outputs have {others[-1].snr:.1f} dB of signal to noise; the quantized inputs {inputs}."
    if worst.added <= SAME * _share(first.snr):
        return f"{text} No operation adds noise to that of the inputs."
    text += f" Most noise comes from {worst.label}, whose outputs have {worst.snr:.1f} dB."
    if worst.beyond > MANY:
        return f'{text} {worst.beyond:.1%} of its numbers are beyond the range: try ranges="minmax", or more examples.'
    if worst is others[-1]:
        return f"{text} Keep it in float by float_layers, or train with quantization."
    alike = ", or make the ranges of its channels alike, as a batch norm does" if worst.weight_bytes else ""
    return f"{text} Train with quantization{alike}."
