"""overlay: arrays that live at the same time never share a byte, and those that do not, do."""

import numpy as np

from minidl_c.overlay import overlay


def random_spans(rng, n):
    spans = rng.integers(0, (9, 30, 9), (n, 3)).tolist()
    return [(64 * size, first, first + more) for size, first, more in spans]


def test_what_lives_at_the_same_time_lies_apart(rng):
    for n in [0, 1, 2, *rng.integers(3, 40, 200)]:
        spans = random_spans(rng, n)
        places, end = overlay(spans)
        for i, (size, first, last) in enumerate(spans):
            assert 0 <= places[i] <= places[i] + size <= end
            for k in range(i):
                other_size, other_first, other_last = spans[k]
                if first <= other_last and other_first <= last:
                    assert places[i] + size <= places[k] or places[k] + other_size <= places[i]


def test_memory_is_little_more_than_what_ever_lives_at_once(rng):
    shares = []
    for _ in range(100):
        spans = random_spans(rng, 40)
        most = max(sum(size for size, first, last in spans if first <= now <= last) for now in range(40))
        shares.append(overlay(spans)[1] / most)
    assert min(shares) >= 1
    assert np.median(shares) < 1.15
