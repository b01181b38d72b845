"""memory_planner: arrays with overlapping lifetimes never share a byte, and others reuse memory."""

import sys

import numpy as np
import pytest

from minidl_c.runtime import memory_planner as module
from minidl_c.runtime.memory_planner import plan_offsets


def random_spans(rng, n):
    spans = rng.integers(0, (9, 30, 9), (n, 3)).tolist()
    return [(64 * size, first, first + more) for size, first, more in spans]


def test_arrays_with_overlapping_lifetimes_do_not_overlap(rng):
    for n in [0, 1, 2, *rng.integers(3, 40, 200)]:
        spans = random_spans(rng, n)
        places, end = plan_offsets(spans)
        for i, (size, first, last) in enumerate(spans):
            assert 0 <= places[i] <= places[i] + size <= end
            for k in range(i):
                other_size, other_first, other_last = spans[k]
                if first <= other_last and other_first <= last:
                    assert places[i] + size <= places[k] or places[k] + other_size <= places[i]


def test_memory_is_close_to_the_peak_of_live_bytes(rng):
    shares = []
    for _ in range(100):
        spans = random_spans(rng, 40)
        most = max(sum(size for size, first, last in spans if first <= now <= last) for now in range(40))
        shares.append(plan_offsets(spans)[1] / most)
    assert min(shares) >= 1
    assert np.median(shares) < 1.15


def first_fit(spans):
    """Places the largest array first, each at the lowest offset free of all arrays with an overlapping lifetime."""
    places, placed = [0] * len(spans), []
    for i in sorted(range(len(spans)), key=lambda i: -spans[i][0]):
        size, first, last = spans[i]
        there = sorted((at, at + n) for at, n, a, b in placed if a <= last and first <= b and n)
        for start, stop in there:
            if places[i] + size <= start:
                break
            places[i] = max(places[i], stop)
        placed.append((places[i], size, first, last))
    return places, max((at + n for at, n, _, _ in placed), default=0)


def test_offsets_match_first_fit(rng):
    for n in [0, 1, 2, *rng.integers(3, 80, 300)]:
        spans = random_spans(rng, n)
        assert plan_offsets(spans) == first_fit(spans)


SIZES = (64, 128, 192, 512, 1024)
NETS = {  # the lifetimes of the values of a chain of n layers
    "inference": lambda n: [(SIZES[k % 5], k, k + 1) for k in range(n)],
    "inference, all sizes": lambda n: [(64 * (k * 7919 % n + 1), k, k + 1) for k in range(n)],
    "without numbers": lambda n: [(0, k, k + 1) for k in range(n)],
    "training": lambda n: [
        *((SIZES[k % 5], k, 2 * n - k) for k in range(n)),
        *((SIZES[k % 5], 2 * n - k - 1, 2 * n - k) for k in range(n)),
    ],
}


def lines_run(spans):
    """Counts the executed lines of memory_planner.py, a measure of work that does not depend on the machine's load."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == module.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        plan_offsets(spans)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("net", NETS)
def test_work_grows_linearly_with_the_number_of_layers(net):
    small, large = (lines_run(NETS[net](n)) for n in (250, 2000))
    assert small > 250
    assert large < 8 * 1.6 * small  # 8 times the layers; their tree is three levels deeper
