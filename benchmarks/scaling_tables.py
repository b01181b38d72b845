"""The printed tables of scaling.py."""

from nets import NETS
from scaling_model import FORMULA
from scaling_overlap import COMPUTATION, EXCHANGE, IN_SEQUENCE, OVERLAPPED, OVERLAPPED_POLLING


def format_heading(found):
    return f"{NETS[found['net']].title}, batch {found['batch_size']}"


def format_table(found):
    """Returns the table of all sides, with the parts of a step and its bytes."""
    lines = [f"{format_heading(found)}: {found['slots']} slots"]
    lines.append(f"{'':30}{'ms/step':>9}{'fastest':>9}{'slowest':>9}{'images/s':>11}")
    for name, side in found["sides"].items():
        ms = side["milliseconds"]
        times = f"{ms['median']:9.3f}{ms['smallest']:9.3f}{ms['largest']:9.3f}"
        lines.append(f"{name:30}{times}{side['images_per_second']:11,.0f}")
    if not found["steady"]:
        lines.append("unsteady: a median above 1.5 times the fastest round; do not trust these speeds")
    first, step = next(iter(found["sides"])), found["step"]
    lines.append(f"speed of {first} relative to {found['ratio_to']}: {found['ratio']:.2f}")
    fraction = step["exchange"] / step["step"]
    lines.append(
        f"its step: {step['compute']:.3f} ms computation, {step['joining']:.3f} of them joining nodes; "
        f"{step['exchange']:.3f} ms exchange ({fraction:.0%})"
    )
    moving = step["scatter"] + step["gather"]
    lines.append(
        f"with barriers: {step['waiting']:.3f} ms waiting for other ranks, {moving:.3f} ms moving bytes "
        f"(scatter {step['scatter']:.3f}, gather {step['gather']:.3f})"
    )
    return "\n".join([*lines, format_bytes(found["bytes"])])


def format_bytes(found):
    """Returns a line on the bytes sent per step, relative to the parameters and to the formula."""
    total, formula = sum(found["sent"]), sum(found["formula"])
    each = ", ".join(f"{count:,}" for count in found["sent"])
    return (
        f"{format_heading(found)}, {found['ranks']} ranks: {total:,} bytes sent per step (by rank: {each}), "
        f"{total / found['parameters']:.2f} times the {found['parameters']:,} of the parameters; "
        f"{total / formula - 1:+.1%} relative to the formula"
    )


def format_overlap(found):
    """Returns lines on how much of an exchange a computation hides, and how much a backward pass could hide."""
    ms = found["milliseconds"]
    names = (EXCHANGE, COMPUTATION, IN_SEQUENCE, OVERLAPPED, OVERLAPPED_POLLING)
    lines = [f"{format_heading(found)}: an exchange of its bytes, and a computation as long as its backward pass, ms"]
    lines.append("    " + ", ".join(f"{name} {ms[name]:.3f}" for name in names))
    for name in (OVERLAPPED, OVERLAPPED_POLLING):
        hidden = ms[IN_SEQUENCE] - ms[name]
        lines.append(
            f"    {name}: overlap hides {hidden:.3f} of {ms[EXCHANGE]:.3f} ms, {hidden / found['step']:+.1%} of a step"
        )
    work, data = found["dense_gradient_share_of_work"], found["dense_share_of_bytes"]
    limit = min(data * found["moving"], work * found["compute"])
    lines.append(
        f"    gradients are complete when all tiles are done; those of dense layers, {data:.0%} of the bytes, are\n"
        f"    computed then, {work:.1%} of the work: that could hide at most {limit:.3f} of {found['moving']:.3f} ms"
    )
    return "\n".join(lines)


def format_model_heading(latency, bandwidth):
    """Returns the heading of the model's tables, with the formula."""
    return f"""MODEL, not measured: images/s on 1 to 64 nodes, {1e6 * latency:g} us and {bandwidth / 1e9:g} GB/s
{FORMULA}

    A rank without a slot has nothing to do: more ranks than slots do not help."""


def format_model(found):
    """Returns images per second by number of nodes, and the model's prediction of this job with its measurement."""
    speeds = found["images_per_second"]
    lines = [f"MODEL, {NETS[found['net']].title}: fixed {found['fixed']:.3f} ms, images/s by number of nodes"]
    nodes = list(next(iter(speeds.values())))
    lines.append(f"{'batch':>8}{'slots':>7}" + "".join(f"{n:>11}" for n in nodes))
    for size, row in speeds.items():
        lines.append(f"{size:8}{found['slots'][size]:7}" + "".join(f"{row[n]:11,.0f}" for n in nodes))
    lines.append("the model of this job, from the latency and bandwidth of messages here, and the measurement:")
    for size, check in found["check"].items():
        predicted, measured = check["predicted"], check["measured"]
        lines.append(
            f"    batch {size}: {1e6 * check['latency']:.1f} us, {check['bandwidth'] / 1e9:.2f} GB/s: "
            f"predicted {predicted:.3f} ms, measured {measured:.3f} ms ({predicted / measured:.2f})"
        )
    return "\n".join(lines)
