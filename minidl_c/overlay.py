"""Arrays that share memory because they never live at the same time."""


def overlay(spans):
    """Places for arrays (bytes, first, last), so that no two that live at a common time overlap.

    The largest comes first, each at the lowest place that is free. Returns the places and where the last array ends.

    >>> overlay([(64, 0, 1), (128, 1, 2), (64, 2, 3)])
    ([128, 0, 128], 192)
    """
    places, end = [0] * len(spans), 0
    placed = []
    for i in sorted(range(len(spans)), key=lambda i: -spans[i][0]):
        size, first, last = spans[i]
        for start, stop, other_first, other_last in sorted(placed):
            if other_first > last or other_last < first:
                continue
            if places[i] + size <= start:
                break
            places[i] = max(places[i], stop)
        placed.append((places[i], places[i] + size, first, last))
        end = max(end, places[i] + size)
    return places, end
