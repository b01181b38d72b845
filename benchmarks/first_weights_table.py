"""Markdown tables of the results of first_weights.py: {(net, inputs, optimizer, rate, init, seed): accuracy}."""

from collections import defaultdict
from statistics import median


def format_tables(found, inits):
    """Returns a table per optimizer, with a row per net and rate, and one of the largest shortfalls of each kind."""
    rates = defaultdict(list)
    for net, _, optimizer, lr, _, _ in found:
        rates[net, optimizer].append(lr)
    parts = []
    for optimizer in dict.fromkeys(key[2] for key in found):
        lines = [f"{optimizer}:", "", f"| net | lr | {' | '.join(inits)} |", "|---" * (2 + len(inits)) + "|"]
        for (net, which), of_net in rates.items():
            for lr in sorted(set(of_net)) if which == optimizer else ():
                cells = [format_cell(found, net, optimizer, lr, init) for init in inits]
                lines.append(f"| {net} | {lr:g} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, format_shortfalls(found, inits)])


def format_cell(found, net, optimizer, lr, init):
    """Returns the median over all inputs and seeds, with the worst run in brackets."""
    key = (net, optimizer, lr, init)
    values = [100 * value for (n, _, o, r, i, _), value in found.items() if (n, o, r, i) == key]
    return f"{median(values):.1f} ({min(values):.1f})" if values else ""


def format_shortfalls(found, inits):
    """Returns, for each kind, the three cells (net, inputs, optimizer, rate) that are farthest below the best kind."""
    cells = defaultdict(lambda: defaultdict(list))
    for (*cell, init, _), value in found.items():
        cells[tuple(cell)][init].append(100 * value)
    lines = ["| init | points below the best | where |", "|---|---|---|"]
    for init in inits:
        gaps = {
            cell: max(map(median, of_cell.values())) - median(of_cell[init])
            for cell, of_cell in cells.items()
            if init in of_cell
        }
        for cell in sorted(gaps, key=gaps.get, reverse=True)[:3]:
            net, inputs, optimizer, lr = cell
            lines.append(f"| {init} | {gaps[cell]:.1f} | {net}, {inputs}, {optimizer} {lr:g} |")
    return "\n".join(lines)
