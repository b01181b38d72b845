"""Grids of small images, and their colour maps."""

import math

import numpy as np
import pytest
from in_turn import in_turn

from minidl.plots.image_grid import (
    GAP,
    LABEL_HEIGHT,
    MAX_HEIGHT,
    MAX_TILE,
    MIN_TILE,
    color_scale,
    fit_grid,
    prepare_images,
    tile_ratio,
)

RNG = np.random.default_rng(0)


@in_turn("n", [1, 2, 3, 7, 16, 32, 64, 100, 128, 300])
@in_turn("ratio", [0.25, 1.0, 4.0])
@in_turn("width, height", [(6.0, None), (2.4, None), (2.4, 2.2), (6.0, 1.0)])
@pytest.mark.parametrize("tiles_per_unit", [1, 3])
def test_a_grid_fits(n, ratio, width, height, tiles_per_unit):
    side_width = 0.2 * (tiles_per_unit > 1)
    grid = fit_grid(n, width, height, ratio, tiles_per_unit, side_width=side_width)
    assert 1 <= grid.shown <= n and grid.columns * (grid.rows - 1) < grid.shown <= grid.columns * grid.rows
    assert MIN_TILE - 1e-9 <= grid.tile_width <= MAX_TILE
    assert grid.columns * (side_width + tiles_per_unit * (grid.tile_width + GAP)) <= width + 1e-9
    if ratio * MIN_TILE + GAP + LABEL_HEIGHT <= (height or MAX_HEIGHT):
        assert grid.rows * (grid.tile_width * ratio + GAP + LABEL_HEIGHT) <= (height or 1.5 * MAX_HEIGHT) + 1e-9
    if height is None and n <= 16 and ratio <= 1:
        assert grid.shown == n


def test_an_unlimited_height_shows_all():
    assert fit_grid(500, 6.0, None, min_column=1.4, min_tile=0.6, max_height=math.inf).shown == 500


def test_rows_are_full_if_possible():
    for n in (4, 6, 8, 16, 32, 64):
        grid = fit_grid(n, 6.0, None)
        assert grid.columns * grid.rows <= 1.02 * n


def test_columns_are_at_least_as_wide_as_their_text():
    wide, narrow = (fit_grid(12, 6.0, 3.0, min_column=text) for text in (1.4, 0.4))
    assert wide.columns * (1.4 + GAP) <= 6.0 and wide.columns < narrow.columns


def test_color_scale():
    scale = color_scale(np.array([0.5, -0.25, np.nan]), signed=True)
    assert (scale["cmap"], scale["vmin"], scale["vmax"]) == ("RdBu_r", -0.5, 0.5)
    assert color_scale(np.array([0.5, 1.0]), signed=True)["vmin"] == -1
    assert color_scale(np.array([-0.5, 0.25])) == {"cmap": "RdBu_r", "vmin": -0.5, "vmax": 0.5}
    assert color_scale(np.array([0.5, 0.25])) == {"cmap": "Blues", "vmin": 0, "vmax": 0.5}
    assert color_scale(np.zeros(3)) == {"cmap": "Blues", "vmin": 0, "vmax": 1}
    assert color_scale(np.array([np.inf, 0.0]), signed=True)["vmax"] == 1


def test_rgb_images():
    bytes_ = RNG.integers(0, 100, (5, 3, 4, 6), dtype=np.uint8)
    shown, cmap = prepare_images(bytes_)
    assert cmap == {} and shown.shape == (5, 4, 6, 3)
    np.testing.assert_allclose(shown, bytes_.transpose(0, 2, 3, 1) / 255)
    unit = RNG.random((5, 3, 4, 6)) / 2
    np.testing.assert_allclose(prepare_images(unit)[0], unit.transpose(0, 2, 3, 1))
    for scaled in (unit * 600, unit * 8 - 2, -unit, unit.astype("f4") * 1e30):
        shown, _ = prepare_images(scaled)
        assert shown.min() == pytest.approx(0, abs=0.01) and shown.max() == pytest.approx(1, abs=0.01)
        line = np.polyfit(scaled.astype(float).ravel() / abs(scaled).max(), shown.transpose(0, 3, 1, 2).ravel(), 1)
        assert line[0] > 0  # the order of brightness is kept


def test_grey_images():
    grey = RNG.integers(0, 17, (5, 1, 4, 6), dtype=np.uint8)
    shown, cmap = prepare_images(grey)
    assert np.array_equal(shown, grey[:, 0]) and cmap == {"cmap": "gray", "vmin": 0, "vmax": 16}
    assert prepare_images(grey - 20.0)[1]["vmin"] < -15 and prepare_images(grey - 20.0)[1]["vmax"] == 0
    assert prepare_images(grey * 0)[1] == {"cmap": "gray", "vmin": 0, "vmax": 1}
    many = RNG.random((2, 5, 4, 4))
    np.testing.assert_allclose(prepare_images(many)[0], many.mean(axis=1))


def test_the_ratio_of_tiles_is_limited():
    assert tile_ratio(28, 28) == 1 and tile_ratio(3, 6) == 0.5 and tile_ratio(1, 100) == 0.25 and tile_ratio(9, 1) == 4
