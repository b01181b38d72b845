"""The tables of first_weights.py, in Markdown.

They are of what it found: {(net, inputs, optimizer, rate, init, seed): accuracy}.
"""

from collections import defaultdict
from statistics import median


def tables(found, inits):
    """For each optimizer a row a net and rate; then where each kind of first weights falls farthest behind the best."""
    rates = defaultdict(list)
    for net, _, optimizer, lr, _, _ in found:
        rates[net, optimizer].append(lr)
    parts = []
    for optimizer in dict.fromkeys(key[2] for key in found):
        lines = [f"{optimizer}:", "", f"| net | lr | {' | '.join(inits)} |", "|---" * (2 + len(inits)) + "|"]
        for (net, which), of_net in rates.items():
            for lr in sorted(set(of_net)) if which == optimizer else ():
                cells = [said(found, net, optimizer, lr, init) for init in inits]
                lines.append(f"| {net} | {lr:g} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, shortfalls(found, inits)])


def said(found, net, optimizer, lr, init):
    """The median over all inputs and seeds, and the worst of these runs."""
    key = (net, optimizer, lr, init)
    values = [100 * value for (n, _, o, r, i, _), value in found.items() if (n, o, r, i) == key]
    return f"{median(values):.1f} ({min(values):.1f})" if values else ""


def shortfalls(found, inits):
    """For each kind the three cells (net, inputs, optimizer, rate) whose median is farthest below the best kind's."""
    cells = defaultdict(lambda: defaultdict(list))
    for (*cell, init, _), value in found.items():
        cells[tuple(cell)][init].append(100 * value)
    lines = ["| init | behind the best, in points | where |", "|---|---|---|"]
    for init in inits:
        behind = {
            cell: max(map(median, of_cell.values())) - median(of_cell[init])
            for cell, of_cell in cells.items()
            if init in of_cell
        }
        for cell in sorted(behind, key=behind.get, reverse=True)[:3]:
            net, inputs, optimizer, lr = cell
            lines.append(f"| {init} | {behind[cell]:.1f} | {net}, {inputs}, {optimizer} {lr:g} |")
    return "\n".join(lines)
