"""What scaling.py found, in lines for people."""

from nets import NETS
from scaling_model import FORMULA
from scaling_overlap import AT_ONCE, BEHIND, CALLING, COMPUTATION, EXCHANGE


def heading(found):
    return f"{NETS[found['net']].title}, batch {found['batch_size']}"


def table(found):
    """All sides, the parts of a step, the bytes."""
    lines = [f"{heading(found)}: {found['slots']} slots"]
    lines.append(f"{'':30}{'ms/step':>9}{'fastest':>9}{'slowest':>9}{'images/s':>11}")
    for name, side in found["sides"].items():
        ms = side["milliseconds"]
        times = f"{ms['median']:9.3f}{ms['smallest']:9.3f}{ms['largest']:9.3f}"
        lines.append(f"{name:30}{times}{side['images_per_second']:11,.0f}")
    if not found["steady"]:
        lines.append("unsteady: a median above 1.5 times the fastest round; do not trust these speeds")
    first, step = next(iter(found["sides"])), found["step"]
    lines.append(f"speed of {first} beside {found['ratio_to']}: {found['ratio']:.2f}")
    share = step["exchange"] / step["step"]
    lines.append(
        f"its step: {step['compute']:.3f} ms compute, {step['joining']:.3f} of them to join nodes; "
        f"{step['exchange']:.3f} ms exchange ({share:.0%})"
    )
    moving = step["scatter"] + step["gather"]
    lines.append(
        f"with barriers: {step['waiting']:.3f} ms wait for others, {moving:.3f} ms move bytes "
        f"(scatter {step['scatter']:.3f}, gather {step['gather']:.3f})"
    )
    return "\n".join([*lines, bytes_line(found["bytes"])])


def bytes_line(found):
    """What is sent in a step, beside the parameters and the formula."""
    total, formula = sum(found["sent"]), sum(found["formula"])
    each = ", ".join(f"{count:,}" for count in found["sent"])
    return (
        f"{heading(found)}, {found['ranks']} ranks: {total:,} bytes sent a step (by rank: {each}), "
        f"{total / found['parameters']:.2f} times the {found['parameters']:,} of the parameters; "
        f"{total / formula - 1:+.1%} beside the formula"
    )


def overlap_lines(found):
    """What of an exchange a computation hides, and what the order of a pass leaves to hide."""
    ms = found["milliseconds"]
    names = (EXCHANGE, COMPUTATION, BEHIND, AT_ONCE, CALLING)
    lines = [f"{heading(found)}: an exchange of its bytes, and a computation as long as its backward pass, ms"]
    lines.append("    " + ", ".join(f"{name} {ms[name]:.3f}" for name in names))
    for name in (AT_ONCE, CALLING):
        hidden = ms[BEHIND] - ms[name]
        lines.append(
            f"    {name}: overlap hides {hidden:.3f} of {ms[EXCHANGE]:.3f} ms, {hidden / found['step']:+.1%} of a step"
        )
    work, share = found["dense_gradient_share_of_work"], found["dense_share_of_bytes"]
    most = min(share * found["moving"], work * found["compute"])
    lines.append(
        f"    gradients are complete when all tiles are done; then those of dense layers, {share:.0%} of the bytes,\n"
        f"    are computed, {work:.1%} of the work: that could hide at most {most:.3f} of {found['moving']:.3f} ms"
    )
    return "\n".join(lines)


def model_heading(latency, bandwidth):
    """What the tables of the model have in common."""
    return f"""MODEL, not measured: images/s on 1 to 64 nodes, {1e6 * latency:g} us and {bandwidth / 1e9:g} GB/s
{FORMULA}

    A rank without a slot has nothing to do: more ranks than slots make nothing faster."""


def model_table(found):
    """Images a second of more nodes, and the model beside what was measured here."""
    speeds = found["images_per_second"]
    lines = [f"MODEL, {NETS[found['net']].title}: fixed {found['fixed']:.3f} ms, images/s on so many nodes"]
    nodes = list(next(iter(speeds.values())))
    lines.append(f"{'batch':>8}{'slots':>7}" + "".join(f"{n:>11}" for n in nodes))
    for size, row in speeds.items():
        lines.append(f"{size:8}{found['slots'][size]:7}" + "".join(f"{row[n]:11,.0f}" for n in nodes))
    lines.append("the model of this job, from latency and bandwidth of messages here, beside what was measured:")
    for size, check in found["check"].items():
        predicted, measured = check["predicted"], check["measured"]
        lines.append(
            f"    batch {size}: {1e6 * check['latency']:.1f} us, {check['bandwidth'] / 1e9:.2f} GB/s: "
            f"predicted {predicted:.3f} ms, measured {measured:.3f} ms ({predicted / measured:.2f})"
        )
    return "\n".join(lines)
