"""gather: copies rows of a batch into tiles of 16 lanes and back, without changing a value."""

import numpy as np
import pytest

from minidl_c.runtime.gather import pack_tiles, unpack_tiles

DTYPES = ("float32", "float64")
WITHOUT_LOSS = [
    ("uint8", "float32"),
    ("uint8", "float64"),
    ("float32", "float32"),
    ("float32", "float64"),
    ("float64", "float64"),
]
SIZES = (1, 2, 15, 31, 32, 33, 64, 65, 100)


def draw(rng, shape, dtype):
    if dtype == "uint8":
        return rng.integers(0, 256, shape, "u1")
    special = rng.choice([np.nan, np.inf, -np.inf, -0.0, 3.4e38], shape)
    return np.where(rng.random(shape) < 0.2, special, rng.random(shape)).astype(dtype)


def expected_tiles(x, rows, dtype):
    """Returns tiles with tiles[t, i, lane] = x[rows[16 t + lane], i]; lanes without a row are zero."""
    tiles = np.zeros((-(-len(rows) // 16), x.shape[1], 16), dtype)
    for k, row in enumerate(rows):
        tiles[k // 16, :, k % 16] = x[row]
    return tiles


@pytest.mark.parametrize("m", [0, 1, 2, 15, 16, 17, 31, 32, 33, 100])
@pytest.mark.parametrize(("x_dtype", "dtype"), WITHOUT_LOSS)
def test_rows_become_lanes(check, dtype, x_dtype, m):
    rng = np.random.default_rng(m)
    for size in SIZES:
        x = check.input(draw(rng, (41, size), x_dtype), x_dtype)
        rows = check.input(rng.integers(0, 41, m), "i8")  # with repetitions
        tiles = check.output((-(-m // 16), size, 16), dtype)
        pack_tiles(x, rows, tiles)
        what = f"{x_dtype} to {dtype} m={m} size={size}"
        check.same_bits(tiles, expected_tiles(x, rows, dtype), f"tiles {what}")
        y = check.output((m, size), dtype)
        unpack_tiles(check.input(tiles, dtype), y)
        check.same_bits(y, x[rows].astype(dtype), f"y {what}")
        check.count("gather", dtype)


def test_float64_is_rounded_to_the_nearest_float32(check):
    x = np.random.default_rng(0).standard_normal((40, 33))
    rows, tiles = np.arange(39, -1, -1), check.output((3, 33, 16), "f4")
    pack_tiles(x, rows, tiles)
    check.same_bits(tiles, expected_tiles(x.astype("f4"), rows, "f4"), "tiles")


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_in_empty_lanes_are_not_scattered(check, dtype):
    tiles = np.full((2, 5, 16), np.nan, dtype)
    tiles[1, :, 1:] = 12345
    tiles[0], tiles[1, :, 0] = 1, 2
    y = check.output((17, 5), dtype)
    unpack_tiles(tiles, y)
    check.equal(y, np.repeat([[1.0], [2.0]], [16, 1], axis=0) * np.ones(5), "y")


def valid_call(check, kernel):
    tiles = np.ones((2, 5, 16), "f4")
    if kernel == "backward":
        return check.call(unpack_tiles, ("y",), tiles=tiles, y=np.ones((17, 5), "f4"))
    x, rows = np.ones((40, 5), "u1"), np.arange(17)
    return check.call(pack_tiles, ("tiles",), x=x, rows=rows, tiles=tiles)


def test_invalid_arrays_are_refused(check):
    check.refuses_invalid_shapes(valid_call(check, "forward"), "tiles")
    check.refuses_invalid_shapes(valid_call(check, "backward"), "tiles")
    for dtypes, name in ((("f2", "i8", "i4", "O"), "x"), (("f8", "i4", "u8"), "rows")):
        check.refuses_invalid_arrays(valid_call(check, "forward"), name, dtypes=dtypes)
    dtypes = ("f2", "i4", "u1", "c8", "O")
    check.refuses_invalid_arrays(valid_call(check, "forward"), "tiles", dtypes=dtypes)
    for name in ("tiles", "y"):
        check.refuses_invalid_arrays(valid_call(check, "backward"), name)


def test_invalid_lengths_are_refused(check):
    call = valid_call(check, "forward")
    for shape in ((40, 4), (40, 6), (40, 0), (0, 5)):
        check.refused(call, {"x": np.ones(shape, "u1")})
    for m in (0, 16, 33):
        check.refused(call, {"rows": np.zeros(m, "i8")}, match="tiles")
    call = valid_call(check, "backward")
    for shape in ((16, 5), (33, 5), (17, 4), (17, 6), (0, 5)):
        check.refused(call, {"y": np.ones(shape, "f4")})


@pytest.mark.parametrize("place", [0, 15, 16])
@pytest.mark.parametrize("row", [-1, -40, 40, 2**31, 2**32, 2**63 - 1, -(2**63)])
def test_rows_outside_x_are_refused(check, row, place):
    call = valid_call(check, "forward")
    rows = call.arguments["rows"].copy()
    rows[place] = row
    check.refused(call, {"rows": rows}, match="rows")
