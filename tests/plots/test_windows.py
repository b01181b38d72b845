"""The windows of a pool, and the region that is drawn; test_receptive_fields.py compares them with the kernel."""

import numpy as np
import pytest

from minidl.plots.windows import View, Windows, check_region, most_informative_region

DISJOINT = Windows((8, 12), (4, 4), (2, 3), (2, 3), (0, 0))
OVERLAPPING = Windows((8, 8), (4, 4), (3, 3), (2, 2), (1, 1))


def test_overlap():
    assert DISJOINT.overlap == (1, 1) and DISJOINT.max_overlap == 1
    assert OVERLAPPING.overlap == (2, 2) and OVERLAPPING.max_overlap == 2
    assert Windows((8, 8), (6, 3), (3, 2), (1, 2), (0, 0)).overlap == (3, 1)
    assert Windows((3, 8), (1, 3), (3, 2), (1, 2), (0, 0)).max_overlap == 1  # one window: the stride is unused
    assert Windows((9, 9), (3, 3), (2, 2), (3, 3), (0, 0)).max_overlap == 1


def test_a_view_has_the_windows_that_intersect_it():
    view = View(OVERLAPPING, (2, 0, 3, 8))
    assert list(view.window_rows) == [1, 2] and list(view.window_columns) == [0, 1, 2, 3]
    assert len(list(view.boxes())) == 8
    assert list(view.boxes())[:2] == [(1, 0, 4, 2), (1, 1, 4, 4)]
    assert not view.is_whole and View(OVERLAPPING, (0, 0, 8, 8)).is_whole
    assert view.crop(np.arange(64).reshape(8, 8)).tolist() == np.arange(16, 40).reshape(3, 8).tolist()
    assert view.cells_inside(np.array([15, 16, 39, 40])).tolist() == [16, 39]
    inner = View(DISJOINT, (2, 3, 2, 3))
    assert (list(inner.window_rows), list(inner.window_columns)) == ([1], [1])


def test_most_informative_region():
    sizes = np.zeros((40, 60))
    sizes[21, 33] = 1.0
    sizes[2, 2] = 0.9
    disjoint = Windows((40, 60), (20, 20), (2, 3), (2, 3), (0, 0))
    top, left, height, width = most_informative_region(disjoint, sizes, (10.9, 10.9))
    assert (height, width) == (10, 9) and top % 2 == left % 3 == 0
    assert top <= 21 < top + height and left <= 33 < left + width
    assert most_informative_region(disjoint, sizes, (100, 100)) == (0, 0, 40, 60)
    assert most_informative_region(disjoint, sizes, (33, 50)) == (0, 0, 40, 60)  # at most a quarter larger
    assert most_informative_region(disjoint, sizes, (0.1, 0.1))[2:] == (2, 3)  # at least one window
    overlapping = Windows((41, 41), (20, 20), (3, 3), (2, 2), (0, 0))
    top, left, height, width = most_informative_region(overlapping, np.pad(sizes, ((0, 1), (0, 0)))[:, :41], (10, 41))
    assert (height, left, width) == (9, 0, 41) and top % 2 == 0 and top <= 21 < top + 9
    whole = Windows((50, 50), (1, 1), (50, 50), (50, 50), (0, 0))
    assert most_informative_region(whole, np.zeros((50, 50)), (5, 5)) == (0, 0, 50, 50)


def test_no_region_is_more_informative():
    windows = Windows((20, 26), (10, 8), (2, 3), (2, 3), (0, 0))
    for seed in range(20):
        sizes = np.random.default_rng(seed).random((20, 26)) ** 8
        top, left, height, width = most_informative_region(windows, sizes, (7, 10))
        others = [sizes[i : i + height, j : j + width].sum() for i in range(0, 15, 2) for j in range(0, 18, 3)]
        assert (height, width) == (6, 9)
        assert sizes[top : top + height, left : left + width].sum() == pytest.approx(max(others))


def test_regions_exclude_the_padding():
    padded = Windows((40, 40), (21, 21), (2, 2), (2, 2), (1, 1))
    sizes = np.zeros((40, 40))
    sizes[0, 39] = 1
    top, left, height, width = most_informative_region(padded, sizes, (8, 8))
    assert top >= 0 and left + width <= 40 and (height, width) == (8, 8)


@pytest.mark.parametrize(
    ("region", "kind", "message"),
    [
        (3, TypeError, "region: expected \\(top, left, height, width\\) in cells, got 3"),
        ((0, 0, 2), TypeError, "region: expected"),
        ((-1, 0, 2, 2), ValueError, "region: top and left: expected at least 0"),
        ((0, 0, 0, 2), ValueError, "region: height and width: expected at least 1"),
        ((0, 0.5, 2, 2), TypeError, "region: top and left"),
        ((7, 0, 2, 2), ValueError, r"within 8 x 12 cells, got \(7, 0, 2, 2\)"),
        ((0, 11, 2, 2), ValueError, "within 8 x 12 cells"),
    ],
)
def test_invalid_regions_are_refused(region, kind, message):
    with pytest.raises(kind, match=message):
        check_region(region, DISJOINT)


def test_valid_regions():
    assert check_region([2, np.int64(3), 4, 9], DISJOINT) == (2, 3, 4, 9)
    with pytest.raises(ValueError, match="region: expected one that contains a cell of a window, got"):
        check_region((2, 2, 1, 1), Windows((9, 9), (3, 3), (2, 2), (3, 3), (0, 0)))
