"""The software FMA of exported files rounds once."""

import ctypes
from fractions import Fraction

import numpy as np
import pytest
from c_export.compiled import compile_c

from minidl.c_export import library
from minidl.c_export.self_test import CASES

LIMITS = {"float32": (24, -126, 127), "float64": (53, -1022, 1023)}  # digits, exponents of the normal numbers
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def rounded(exact, dtype):
    """Returns a fraction rounded once, to nearest, ties to even: zero below the normal numbers, infinity above."""
    digits, least, most = LIMITS[dtype]
    size, exponent = abs(exact), 0
    if size == 0:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (exponent - digits + 1)
    size = round(size / unit) * unit
    sign = -1.0 if exact < 0 else 1.0
    if size < Fraction(2) ** least:
        return sign * 0.0
    return sign * (float("inf") if size >= Fraction(2) ** (most + 1) else float(size))


def numbers(rng, dtype, n):
    """Returns triples: with close and distant exponents, few digits, c close to -a b or half a unit of the other."""
    digits, least, most = LIMITS[dtype]
    mantissas = rng.integers(2 ** (digits - 1), 2**digits, (n, 3))
    mantissas[::3] &= ~((1 << rng.integers(0, digits, (len(mantissas[::3]), 3))) - 1)
    wide = rng.integers(least, most + 1, (n, 3)) * (rng.random((n, 1)) < 0.3)
    exponents = np.clip(wide + rng.integers(-30, 30, (n, 3)), least, most)
    triples = np.ldexp(mantissas.astype(float), exponents - digits + 1) * rng.choice([-1, 1], (n, 3))
    with np.errstate(all="ignore"):
        triples = triples.astype(dtype)
        near = slice(1, None, 4)
        shift = rng.integers(-digits - 3, digits + 3, len(triples[near])) * (rng.random(len(triples[near])) < 0.7)
        triples[near, 2] = np.ldexp(-(triples[near, 0] * triples[near, 1]), shift)
        return triples[np.isfinite(triples).all(axis=1) & (np.abs(triples) >= np.finfo(dtype).tiny).all(axis=1)]


def number(text):
    return Fraction(float.fromhex(text) if "x" in text else int(text))


@pytest.fixture(scope="module")
def soft_fma(tmp_path_factory):
    """Returns a function (triples, *flags): the results of the software FMA."""
    folder = tmp_path_factory.mktemp("fma")

    def call(triples, *flags):
        dtype = triples.dtype.name
        source = folder / f"{dtype}{len(flags)}.c"  # a library is loaded once from a path
        code = library.functions_for("real_fma(a, b, c)", dtype)
        main = "void all(long n, const real *t, real *y);\nvoid all(long n, const real *t, real *y) {"
        loop = "for (long i = 0; i < n; i++, t += 3) y[i] = real_fma(t[0], t[1], t[2]); }"
        without = "#ifdef INTEGERS\n#undef __x86_64__\n#undef __SSE2__\n#undef __aarch64__\n#endif"
        source.write_text(f"#include <stdint.h>\n#include <string.h>\n{without}\n{code}\n{main}\n{loop}\n")
        y = np.empty(len(triples), dtype)
        library_ = ctypes.CDLL(str(compile_c(source, "-O2", "-DSOFT_FMA", "-Wno-unused-function", *flags)))
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (triples, y))
        library_.all(ctypes.c_long(len(y)), *pointers)
        return y

    return call


INTEGERS = ("-DINTEGERS", "-fsanitize=undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("flags", [(), INTEGERS, (*INTEGERS, "-D__ARM_ARCH_6M__")])
@each_dtype
def test_it_rounds_once(dtype, flags, soft_fma):
    """From doubles, from integers, and with the product in parts, as on a Cortex-M0."""
    triples = numbers(np.random.default_rng(len(flags)), dtype, 6000)
    expected = [rounded(Fraction(a) * Fraction(b) + Fraction(c), dtype) for a, b, c in triples.tolist()]
    found = soft_fma(triples, *flags)
    assert len(found) > 4000
    assert found.tobytes() == np.array(expected, dtype).tobytes()


@pytest.mark.parametrize("flags", [(), INTEGERS])
@each_dtype
def test_special_numbers(dtype, flags, soft_fma):
    inf, nan, tiny, top = np.inf, np.nan, np.finfo(dtype).tiny, np.finfo(dtype).max
    cases = [
        (inf, 2, 1, inf), (-inf, 2, 1, -inf), (inf, 0, 1, nan), (inf, 1, -inf, nan), (nan, 1, 1, nan), (1, nan, 1, nan),
        (1, 1, nan, nan), (0, 0, nan, nan), (top, top, -inf, -inf), (top, 2, -top, top), (top, 2, 0, inf),
        (-top, 2, 0, -inf), (1, 1, inf, inf), (0, 5, 3, 3), (0, -5, 0, 0), (0, -5, -0.0, -0.0), (0, 5, -0.0, 0),
        (1, 1, -1, 0), (-1, 1, 1, 0), (tiny, 0.5, 0, 0), (-tiny, 0.5, 0, -0.0), (1.5 * tiny, 1, -tiny, 0),
        (tiny, tiny, -tiny, -tiny),
    ]  # fmt: skip
    if flags:  # doubles get subnormal floats in the processor's mode alone
        cases += [(tiny, 1, -tiny / 2, tiny), (tiny / 2, top, 1, 1), (1, 1, tiny / 2, 1)]
    triples = np.array([case[:3] for case in cases], dtype)
    expected, found = np.array([case[3] for case in cases], dtype), soft_fma(triples, *flags)
    known = ~np.isnan(expected)
    assert np.array_equal(known, ~np.isnan(found))
    assert [*map(repr, found[known].tolist())] == [*map(repr, expected[known].tolist())]


@each_dtype
def test_the_cases_of_the_own_test_tell_one_rounding_from_two(dtype, soft_fma):
    cases = [[number(text.rstrip("f")) for text in case] for case in CASES[dtype]]
    for a, b, c, result in cases:
        assert result == Fraction(rounded(a * b + c, dtype))
        product = Fraction(rounded(a * b, dtype))
        assert result != Fraction(rounded(product + c, dtype))
    if dtype == "float32":  # all but the first case: also where the sum is rounded to a double before
        twice = [Fraction(rounded(Fraction(rounded(a * b + c, "float64")), dtype)) for a, b, c, _ in cases]
        assert [a == b for a, (*_, b) in zip(twice, cases, strict=True)] == [True, False, False, False]
    triples = np.array([[float(x) for x in case[:3]] for case in cases], dtype)
    assert [Fraction(float(y)) for y in soft_fma(triples)] == [result for *_, result in cases]
