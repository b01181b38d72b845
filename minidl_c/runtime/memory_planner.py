"""Arrays that share memory because they never live at the same time."""

from bisect import bisect_left, bisect_right


def overlay(spans):
    """Places for arrays (bytes, first, last), so that no two that live at a common time overlap.

    The largest comes first, each at the lowest place that is free. Returns the places and where the last array ends.

    >>> overlay([(64, 0, 1), (128, 1, 2), (64, 2, 3)])
    ([128, 0, 128], 192)
    """
    places, end = [0] * len(spans), 0
    taken = Taken(max((last for _, _, last in spans), default=0) + 1)
    for i in sorted((i for i, span in enumerate(spans) if span[0]), key=lambda i: -spans[i][0]):
        size, first, last = spans[i]
        places[i] = taken.lowest(size, first, last)
        taken.add(places[i], places[i] + size, first, last)
        end = max(end, places[i] + size)
    return places, end


class Taken:
    """What is taken at each of some times: a binary tree over them, so that a span of time is a few nodes.

    Node 1 is all times, node k the halves 2k and 2k + 1. A node has the places taken during all of it (`whole`) and
    during any part of it (`some`), as ascending edges: where a run of taken bytes begins, where it ends, and so on.
    """

    def __init__(self, times):
        self.leaves = 1 << (times - 1).bit_length()
        self.whole = [[] for _ in range(2 * self.leaves)]
        self.some = [[] for _ in range(2 * self.leaves)]

    def nodes(self, first, last):
        """The fewest nodes that are the times first to last, and all nodes above these."""
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
        """Takes start to stop at the times first to last."""
        inside, above = self.nodes(first, last)
        for edges in [self.whole[node] for node in inside] + [self.some[node] for node in (*inside, *above)]:
            i, j = bisect_left(edges, start), bisect_right(edges, stop)
            edges[i:j] = [start] * (i % 2 == 0) + [stop] * (j % 2 == 0)

    def lowest(self, size, first, last):
        """The lowest place for `size` bytes that are free at all times first to last."""
        inside, above = self.nodes(first, last)
        there = [edges for edges in (*(self.some[n] for n in inside), *(self.whole[n] for n in above)) if edges]
        place, clear = 0, 0  # how many of them are known to leave this place free
        while clear < len(there):
            edges = there.pop(0)
            there.append(edges)
            i, before = bisect_right(edges, place), place
            while i < len(edges) and (i % 2 or edges[i] < place + size):
                place, i = edges[i | 1], (i | 1) + 1
            clear = clear + 1 if place == before else 1
        return place
