"""What the ranks of a host know of its processors: the share of each, and whether Open MPI binds one to fewer."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from typing import Any

BOOT = "/proc/sys/kernel/random/boot_id"  # differs between hosts of the same name
Processors = dict[str, Any]  # of a rank: its "host", its "own" processors, the number that its launcher has


def processors() -> Processors:
    """Returns what the other ranks need to know of the processors of this one; launcher: None unless Open MPI's."""
    boot, launcher = "", None
    with suppress(OSError), open(BOOT, encoding="ascii") as file:
        boot = file.read().strip()
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        with suppress(OSError, AttributeError):  # AttributeError: not Linux
            launcher = len(os.sched_getaffinity(os.getppid()))  # the daemon that started this rank is not bound
    return {"host": f"{platform.node()} {boot}", "own": _own(), "launcher": launcher}


def share(rank: int, ranks: list[Processors]) -> float:
    """Returns the share of its processors that a rank has if the ranks of a host divide them."""
    own, neighbours = ranks[rank]["own"], _neighbours(rank, ranks)
    users = [sum(processor in other["own"] for other in neighbours) for processor in own]
    return sum(1 / count for count in users) / len(own)


def warning_of_binding(ranks: list[Processors]) -> str | None:
    """Returns a warning if ranks are bound to fewer processors than their share of the host; None: none is."""
    bound = []
    for rank, described in enumerate(ranks):
        if described["launcher"] is not None:
            fair = described["launcher"] / len(_neighbours(rank, ranks))
            if len(described["own"]) * share(rank, ranks) < min(fair, max(1, int(fair))) - 1e-6:
                bound.append(rank)
    if not bound:
        return None
    first = ranks[bound[0]]
    return (
        f"mpiexec binds {name_ranks(bound)} to fewer processors than the share of the host (rank {bound[0]}: "
        f"{len(first['own'])} of {first['launcher']} for {len(_neighbours(bound[0], ranks))} ranks), which is slow: "
        f"start it with --bind-to none"
    )


def name_ranks(ranks: list[int]) -> str:
    """Returns the names of ranks, for a sentence: "rank 2", "ranks 1, 3"."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _own() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _neighbours(rank: int, ranks: list[Processors]) -> list[Processors]:
    return [other for other in ranks if other["host"] == ranks[rank]["host"]]
