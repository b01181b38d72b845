"""Random ONNX graphs, imported and computed beside onnxruntime: every graph that is taken must give its outputs.

    python tests/conformance/onnx_random.py --graphs 400      # a minute
    python tests/conformance/onnx_random.py --graphs 20000
    python tests/conformance/onnx_random.py --only 1234       # one graph, with its nodes

A graph is a chain of random operators with random attributes, on images, signals or rows, whose values fork and join
again. They run in child processes, so that a crash is counted. Refusals are counted by their reason. Rounding errors
may grow, for example in a quotient; they are measured by how far onnxruntime's own output moves with its input.
Canaries: a graph whose constants are changed, and one in which a node is, must be noticed.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance.onnx_operators import draw_graph

MAX_ERROR = 1e-4  # of the largest magnitude, for the sums of float32
NOISE = 1e-2  # outputs below it may be the difference of equal numbers
PERTURBATION = 1e-6  # relative change of the inputs, for the condition of a graph
WRONG, REFUSED, EQUAL, INVALID = "WRONG", "refused", "equal", "not run by onnxruntime"
CHUNK = 250  # graphs of a child


def run_onnxruntime(content, x):
    """Returns the output for x, and how far each element moves if x moves a little."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    # onnxruntime 1.31.1 merges a Pad of zeros before a MaxPool into it, where all numbers of a window may be negative
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    moved = [session.run(None, {"x": (x * np.float32(1 + sign * PERTURBATION))})[0] for sign in (1, -1)]
    return y, np.maximum(*(np.abs(other - y) for other in moved))


def difference(found, expected, moves):
    """Returns what is wrong with the output, or an empty string."""
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    steady = np.isfinite(moves)  # an element that is NaN or infinite, or becomes it, has no error to speak of
    if (np.isnan(found) != np.isnan(expected))[steady].any():
        return "NaN in other places"
    both = steady & np.isfinite(expected)
    if not both.any():
        return ""
    scale = max(float(np.abs(expected[both]).max()), NOISE)
    excess = np.abs(found[both] - expected[both]) - 100 * moves[both]
    return "" if (excess <= MAX_ERROR * scale).all() else f"differs by {float(excess.max()) / scale:.1e}"


def examine(seed, edit=None):
    """Returns the verdict on the graph of a seed, and the reason. edit: changes the model after onnxruntime ran it."""
    import minidl

    model, x = draw_graph(np.random.default_rng(seed))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected, moves = run_onnxruntime(model.SerializeToString(), x)
        except Exception as error:
            return INVALID, type(error).__name__
        if edit:
            edit(model)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.onnx"
            path.write_bytes(model.SerializeToString())
            try:
                net = minidl.onnx.import_model(path)
            except ValueError as error:
                return REFUSED, reason_of(str(error).removeprefix(f"{path}: "))
        wrong = difference(net.predict(x), expected, moves)
        if not wrong and not np.array_equal(net.predict(x[:1]), net.predict(x)[:1], equal_nan=True):
            wrong = "an example depends on its batch"
    return (WRONG, wrong) if wrong else (EQUAL, "")


def reason_of(message):
    """Returns the line of a message that says what is missing: the first, or that of the first node of several."""
    first, *others = message.splitlines()
    return others[0].strip() if others and "obstacles:" in first else first


def change_weight(model):
    for tensor in model.graph.initializer:
        if tensor.data_type == 1:  # float
            tensor.raw_data = (np.frombuffer(tensor.raw_data, np.float32) + 1).tobytes()


def change_node(model):
    for node in model.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Softsign"


def noticed(edit, seeds=range(400)):
    """True if a changed graph is noticed, of those that are otherwise equal."""
    return any(examine(seed)[0] == EQUAL and examine(seed, edit)[0] == WRONG for seed in seeds)


def child(first, end):
    """Prints a line for each graph of a range of seeds."""
    for seed in range(first, end):
        print(seed, flush=True)
        verdict, reason = examine(seed)
        print(f"{verdict}\t{reason}", flush=True)


def run_child(first, end):
    """Yields (seed, verdict, reason) of a range of seeds; goes on in another child after a crash."""
    while first < end:
        command = [sys.executable, __file__, "--range", str(first), str(end)]
        ran = subprocess.run(command, capture_output=True, text=True)
        lines = ran.stdout.splitlines()
        for seed, line in zip(lines[::2], lines[1::2], strict=False):
            yield int(seed), *line.split("\t")
        if ran.returncode == 0:
            return
        first = int(lines[-1]) + 1 if lines else end
        yield first - 1, WRONG, f"crashed with {ran.returncode}: {ran.stderr.strip()[-300:]}"


def kind_of(reason):
    """Replaces names, shapes and numbers, so that refusals of one kind are counted together."""
    reason = re.sub(r"^(the )?node (of )?'[^']*' \(([\w.]+)(, with axes .*? as \([\d, ]*\))?\)", r"\3", reason)
    return re.sub(r"\[[^]]*\]|\([^)]*\d[^)]*\)|-?\d+(\.\d+)?(e-?\d+)?|'[^']*'", "#", reason)[:110]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="that of the first graph")
    parser.add_argument("--only", type=int, help="the seed of one graph, which is printed")
    parser.add_argument("--range", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.range:
        return child(*args.range)
    if args.only is not None:
        import onnx

        print(onnx.printer.to_text(draw_graph(np.random.default_rng(args.only))[0]))
        return print(*examine(args.only))
    verdicts, reasons, seeds = Counter(), Counter(), {}
    for first in range(args.seed, args.seed + args.graphs, CHUNK):
        for seed, verdict, reason in run_child(first, min(first + CHUNK, args.seed + args.graphs)):
            verdicts[verdict] += 1
            if verdict == WRONG:
                print(f"graph {seed}: {reason}", flush=True)
            elif reason:
                kind = f"{verdict}: {kind_of(reason)}"
                reasons[kind] += 1
                seeds.setdefault(kind, seed)
    for kind, count in reasons.most_common():
        print(f"{count:6}  {kind}  (first: {seeds[kind]})")
    canaries = [noticed(change_weight), noticed(change_node)]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    print(f"{args.graphs} graphs: {counts}; canaries: {sum(canaries)} of 2 noticed")
    return sys.exit(bool(verdicts[WRONG]) or not all(canaries))


if __name__ == "__main__":
    main()
