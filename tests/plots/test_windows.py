"""The positions of windows, and the region of an input that is drawn (kernels: test_receptive_fields.py)."""

import numpy as np
import pytest

from minidl.plots.windows import View, Windows, check_region, most_informative_region

TILED = Windows((8, 12), (4, 4), (2, 3), (2, 3), (0, 0))
LAPPED = Windows((8, 8), (4, 4), (3, 3), (2, 2), (1, 1))


def test_how_deep_they_lie_upon_each_other():
    assert TILED.depth == (1, 1) and TILED.layers == 1
    assert LAPPED.depth == (2, 2) and LAPPED.layers == 2
    assert Windows((8, 8), (6, 3), (3, 2), (1, 2), (0, 0)).depth == (3, 1)
    assert Windows((3, 8), (1, 3), (3, 2), (1, 2), (0, 0)).layers == 1  # a stride that is never taken
    assert Windows((9, 9), (3, 3), (2, 2), (3, 3), (0, 0)).layers == 1


def test_a_view_has_the_windows_that_touch_it():
    view = View(LAPPED, (2, 0, 3, 8))
    assert list(view.down) == [1, 2] and list(view.across) == [0, 1, 2, 3]
    assert len(list(view.boxes())) == 8
    assert list(view.boxes())[:2] == [(1, 0, 4, 2), (1, 1, 4, 4)]
    assert not view.whole and View(LAPPED, (0, 0, 8, 8)).whole
    assert view.crop(np.arange(64).reshape(8, 8)).tolist() == np.arange(16, 40).reshape(3, 8).tolist()
    assert view.inside(np.array([15, 16, 39, 40])).tolist() == [16, 39]
    inner = View(TILED, (2, 3, 2, 3))
    assert (list(inner.down), list(inner.across)) == ([1], [1])


def test_the_most_telling_region():
    sizes = np.zeros((40, 60))
    sizes[21, 33] = 1.0
    sizes[2, 2] = 0.9
    tiled = Windows((40, 60), (20, 20), (2, 3), (2, 3), (0, 0))
    top, left, height, width = most_informative_region(tiled, sizes, (10.9, 10.9))
    assert (height, width) == (10, 9) and top % 2 == left % 3 == 0
    assert top <= 21 < top + height and left <= 33 < left + width
    assert most_informative_region(tiled, sizes, (100, 100)) == (0, 0, 40, 60)
    assert most_informative_region(tiled, sizes, (33, 50)) == (0, 0, 40, 60)  # a quarter more than fits
    assert most_informative_region(tiled, sizes, (0.1, 0.1))[2:] == (2, 3)  # a window always
    lapped = Windows((41, 41), (20, 20), (3, 3), (2, 2), (0, 0))
    top, left, height, width = most_informative_region(lapped, np.pad(sizes, ((0, 1), (0, 0)))[:, :41], (10, 41))
    assert (height, left, width) == (9, 0, 41) and top % 2 == 0 and top <= 21 < top + 9
    everywhere = Windows((50, 50), (1, 1), (50, 50), (50, 50), (0, 0))
    assert most_informative_region(everywhere, np.zeros((50, 50)), (5, 5)) == (0, 0, 50, 50)


def test_no_other_region_is_more_telling():
    windows = Windows((20, 26), (10, 8), (2, 3), (2, 3), (0, 0))
    for seed in range(20):
        sizes = np.random.default_rng(seed).random((20, 26)) ** 8
        top, left, height, width = most_informative_region(windows, sizes, (7, 10))
        others = [sizes[i : i + height, j : j + width].sum() for i in range(0, 15, 2) for j in range(0, 18, 3)]
        assert (height, width) == (6, 9)
        assert sizes[top : top + height, left : left + width].sum() == pytest.approx(max(others))


def test_the_padding_is_no_part_of_a_region():
    padded = Windows((40, 40), (21, 21), (2, 2), (2, 2), (1, 1))
    sizes = np.zeros((40, 40))
    sizes[0, 39] = 1
    top, left, height, width = most_informative_region(padded, sizes, (8, 8))
    assert top >= 0 and left + width <= 40 and (height, width) == (8, 8)


@pytest.mark.parametrize(
    ("region", "kind", "said"),
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
def test_regions_that_there_are_not(region, kind, said):
    with pytest.raises(kind, match=said):
        check_region(region, TILED)


def test_regions_that_there_are():
    assert check_region([2, np.int64(3), 4, 9], TILED) == (2, 3, 4, 9)
    with pytest.raises(ValueError, match="region: expected one that overlaps a window, got"):
        check_region((2, 2, 1, 1), Windows((9, 9), (3, 3), (2, 2), (3, 3), (0, 0)))
