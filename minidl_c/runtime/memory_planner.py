"""Offsets for arrays that share memory because their lifetimes do not overlap: the planner of an arena."""

from bisect import bisect_left, bisect_right


def plan_offsets(spans, attempts=0, alignment=1):
    """Returns the offsets of arrays (bytes, first, last) without overlap at any time, and the end of the last array.

    The largest array comes first, each at the lowest offset that is free ("greedy by size": Pisarchyk, Lee: "Efficient
    memory management for deep neural net inference", 2020, arXiv:2001.03288). While that leaves a gap, at most
    `attempts` more orders are tried: the array that ends last comes first. The shortest plan is returned. Offsets and
    the end are multiples of `alignment`.

    >>> plan_offsets([(64, 0, 1), (128, 1, 2), (64, 2, 3)])
    ([128, 0, 128], 192)
    >>> chain = [(128, 0, 1), (64, 1, 2), (64, 2, 3), (128, 3, 4)]
    >>> plan_offsets(chain), plan_offsets(chain, attempts=1)
    (([0, 128, 192, 0], 256), ([0, 128, 0, 64], 192))
    """
    order = sorted((i for i, span in enumerate(spans) if span[0]), key=lambda i: -spans[i][0])
    spans = [(-(-size // alignment) * alignment, first, last) for size, first, last in spans]
    best = offsets, _ = first_fit(spans, order)
    least = peak(spans) if attempts else 0
    for _ in range(attempts):
        if best[1] == least:
            break
        highest = max(order, key=lambda i: offsets[i] + spans[i][0])
        order = [highest, *(i for i in order if i != highest)]
        offsets, end = first_fit(spans, order)
        best = min(best, (offsets, end), key=lambda plan: plan[1])
    return best


def peak(spans):
    """Returns the most bytes that are occupied at a time, by brute force."""
    return max((sum(size for size, first, last in spans if first <= now <= last) for _, now, _ in spans), default=0)


def first_fit(spans, order):
    """Returns the offsets and the end if the arrays, by their indices, get the lowest free offset in this order."""
    offsets, end = [0] * len(spans), 0
    occupied = Occupancy(max((last for _, _, last in spans), default=0) + 1)
    for i in order:
        size, first, last = spans[i]
        offsets[i] = occupied.lowest_free(size, first, last)
        occupied.add(offsets[i], offsets[i] + size, first, last)
        end = max(end, offsets[i] + size)
    return offsets, end


class Occupancy:
    """The occupied bytes at each time: a segment tree, in which a span of time consists of a few nodes.

    Node 1 is all times, node k the halves 2k and 2k + 1. A node has the bytes occupied during all of it (`throughout`)
    and during any part of it (`ever`), as ascending edges: the start of a run of occupied bytes, its end, and so on.
    """

    def __init__(self, times):
        self.leaves = 1 << (times - 1).bit_length()
        self.throughout = [[] for _ in range(2 * self.leaves)]
        self.ever = [[] for _ in range(2 * self.leaves)]

    def nodes(self, first, last):
        """Returns the fewest nodes that make up the times first to last, and all ancestors of these."""
        low, high = first + self.leaves, last + self.leaves + 1
        inside, above = [], set()
        while low < high:
            if low & 1:
                inside.append(low)
            if high & 1:
                inside.append(high - 1)
            low, high = (low + 1) // 2, high // 2
        for node in inside:
            while node := node // 2:
                if node in above:
                    break
                above.add(node)
        return inside, above

    def add(self, start, stop, first, last):
        """Occupies bytes start to stop at the times first to last."""
        inside, above = self.nodes(first, last)
        for edges in [self.throughout[node] for node in inside] + [self.ever[node] for node in (*inside, *above)]:
            i, j = bisect_left(edges, start), bisect_right(edges, stop)
            edges[i:j] = [start] * (i % 2 == 0) + [stop] * (j % 2 == 0)

    def lowest_free(self, size, first, last):
        """Returns the lowest offset of `size` bytes that are free at all times first to last."""
        inside, above = self.nodes(first, last)
        runs = [edges for edges in (*(self.ever[n] for n in inside), *(self.throughout[n] for n in above)) if edges]
        offset, n_clear = 0, 0  # the number of nodes known to have these bytes free
        while n_clear < len(runs):
            edges = runs.pop(0)
            runs.append(edges)
            i, before = bisect_right(edges, offset), offset
            while i < len(edges) and (i % 2 or edges[i] < offset + size):
                offset, i = edges[i | 1], (i | 1) + 1
            n_clear = n_clear + 1 if offset == before else 1
        return offset
