"""Values that are needed at the same time do not share memory."""

import numpy as np
from in_turn import in_turn

from minidl.c_export import arena
from minidl.c_export.arena import ALIGNMENT, OVERREAD, Access, place


def lifetimes(sizes, accesses, live_out):
    """Returns the first and the last step of each value, by brute force."""
    first = {0: -1}
    last = {0: -1, **dict.fromkeys(live_out, len(accesses))}
    for number, access in enumerate(accesses):
        for value in access.writes:
            first.setdefault(value, number)
            last[value] = max(last.get(value, number), number)
        for value in access.reads:
            last[value] = max(last.get(value, number), number)
    return {value: (first[value], last[value]) for value in first}


def random_program(rng):
    sizes, accesses = [int(rng.integers(1, 100))], []
    for _ in range(rng.integers(1, 30)):
        reads = tuple(int(v) for v in rng.choice(len(sizes), rng.integers(1, 3)))
        in_place = bool(rng.random() < 0.5)
        sizes.append(sizes[reads[0]] if in_place else int(rng.integers(1, 100)))
        writes = [len(sizes) - 1]
        if not in_place and rng.random() < 0.3:
            sizes.append(int(rng.integers(1, 100)))  # scratch
            writes.append(len(sizes) - 1)
        accesses.append(Access(reads, tuple(writes), in_place))
    return sizes, accesses


@in_turn("seed", range(200))
def test_live_values_do_not_overlap(seed):
    rng = np.random.default_rng(seed)
    sizes, accesses = random_program(rng)
    live_out = {len(sizes) - 1, *(int(v) for v in rng.choice(len(sizes), 2))} if seed % 2 else {len(sizes) - 1}
    offsets, total = place(sizes, accesses, live_out)
    alive = lifetimes(sizes, accesses, live_out)
    replaced = {(s.reads[0], s.writes[0]) for s in accesses if s.in_place}
    for a in alive:
        assert offsets[a] % ALIGNMENT == 0
        assert offsets[a] + sizes[a] + OVERREAD <= total
        for b in alive:
            if a >= b or alive[a][0] > alive[b][1] or alive[b][0] > alive[a][1]:
                continue
            apart = offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]
            ends_there = (a, b) in replaced and alive[a][1] == alive[b][0]
            assert apart or (ends_there and offsets[a] == offsets[b]), (a, b)


def test_more_attempts_never_take_more_memory(monkeypatch):
    smaller = 0
    for seed in range(200):
        sizes, accesses = random_program(np.random.default_rng(seed))
        totals = []
        for attempts in (0, 1, 2, 5, 50):
            monkeypatch.setattr(arena, "ATTEMPTS", attempts)
            totals.append(place(sizes, accesses, {len(sizes) - 1})[1])
        assert totals == sorted(totals, reverse=True)
        smaller += totals[-1] < totals[0]
    assert smaller


def test_a_chain_of_elementwise_functions_needs_one_place():
    accesses = [Access((i,), (i + 1,), in_place=True) for i in range(5)]
    offsets, total = place([100] * 6, accesses, {5})
    assert set(offsets) == {0}
    assert total == 112 + OVERREAD


def test_a_value_that_is_read_later_is_not_replaced():
    offsets, _ = place([10, 10, 10], [Access((0,), (1,), True), Access((1, 0), (2,), True)], {2})
    assert offsets[0] != offsets[1]
    assert offsets[2] == offsets[1]


def test_two_values_take_turns():
    """A chain that is not in place needs the memory of two neighbours."""
    _, total = place([160] * 6, [Access((i,), (i + 1,)) for i in range(5)], {5})
    assert total == 320 + OVERREAD


def test_memory_of_a_dead_value_is_used_again():
    """In the order of sizes, value 2 has no place but after value 1, though the large value 0 is dead by then."""
    _, total = place([9216, 4608, 4608, 9216], [Access((i,), (i + 1,)) for i in range(3)], {3})
    assert total == 13824 + OVERREAD
