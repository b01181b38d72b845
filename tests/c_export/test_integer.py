"""C files of quantized nets: integers alone, each equal to the reference's."""

import ctypes
import re
import subprocess

import numpy as np
import pytest
import reference_integer
from c_export.compiled import CC, compile_c
from c_export.compiled_programs import (
    STRICT,
    CompiledProgram,
    convolution,
    draw_inputs,
    half_to_even,
    program_of,
    scores_of,
    write,
)
from integer_programs import random_program
from slow_marks import slow_after

from minidl.c_export.export_program import export_program
from minidl.quantization import program as p

SANITIZED = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")
OPTIONS = [("-O1",), ("-O3", "-march=native"), SANITIZED, ("-O2", "-DNET_PLAIN_C")]


def check(program, rng, compiled):
    q, bytes_ = (draw_inputs(rng, program, 3, dtype) for dtype in (np.int8, np.uint8))
    assert np.array_equal(compiled.predict(q), scores_of(program)(q))
    quantized = reference_integer.quantize_input(program.input, bytes_)
    assert np.array_equal(compiled.predict(bytes_), scores_of(program)(quantized))
    assert compiled.test() == 0


@pytest.mark.parametrize("seed", slow_after(12, range(100)))
def test_random_programs_have_the_scores_of_the_reference(seed, tmp_path):
    rng = np.random.default_rng(seed)
    program = random_program(rng)
    check(program, rng, CompiledProgram(program, tmp_path, *OPTIONS[seed % len(OPTIONS)]))


def ties():
    """Returns a program that rescales sums in many ways, and its input, of which they are 16 x + y, of 4 bits each."""
    shifts = [1, 2, 31, 32, 33, 34, 61, 62]
    factors = [(m, shift) for m in (0, 1, 2, 3, 2**29, 2**30, 2**31 - 1) for shift in shifts]
    multipliers, shifts = np.array(factors).T
    step = convolution(np.tile([[[16]], [[1]]], (len(factors), 1, 1, 1)), 0, multipliers, shifts)
    q = np.array(np.meshgrid(*[np.arange(16) - 8 - 3] * 2), np.int8)[None]
    return program_of((2, 16, 16), (step, (0,), (len(factors), 16, 16))), q


def padded():
    """Returns a program whose padding is seen, and its input."""
    weights = np.arange(-9, 9).reshape(1, 2, 3, 3)
    program = program_of((2, 4, 4), (convolution(weights, 5, 1, 6, (1, 1, 1, 1)), (0,), (1, 4, 4)))
    return program, draw_inputs(np.random.default_rng(0), program, 3)


def test_a_half_is_rounded_up(tmp_path):
    """Also of negative sums, and at the shifts from which on the upper half of a product is enough."""
    program, q = ties()
    assert np.array_equal(CompiledProgram(program, tmp_path, *SANITIZED).predict(q), scores_of(program)(q))


def replaced(right, wrong):
    """Returns a function that replaces text, which is there once."""

    def edit(text):
        assert text.count(right) == 1
        return text.replace(right, wrong)

    return edit


QUOTIENTS = "(((dividend >> (shift - 1)) + 1) >> 1)", "(((upper >> (shift - 33)) + 1) >> 1)"
WRONG = {  # the program that sees it, and what is wrong
    "a half to even": (ties, half_to_even),
    "a half down": (ties, replaced(QUOTIENTS[0], "((dividend + ((uint64_t)1 << (shift - 1)) - 1) >> shift)")),
    "toward the floor": (ties, replaced(QUOTIENTS[0], "(dividend >> shift)")),
    "toward the floor, large shifts": (ties, replaced(QUOTIENTS[1], "((upper >> (shift - 33)) >> 1)")),
    "padding of zeros": (padded, replaced("memset(window, k->zero,", "memset(window, 0,")),
    "no padding on the left": (padded, replaced("k->column_stride - k->left;", "k->column_stride;")),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arithmetic_is_noticed(name, tmp_path):
    make, edit = WRONG[name]
    program, q = make()
    compiled = CompiledProgram(program, tmp_path, edit=edit)
    assert not np.array_equal(compiled.predict(q), scores_of(program)(q))
    assert compiled.test() > 0


# ---- what the text may contain


def texts(tmp_path):
    """Yields C files that have, together, all functions; without comments and what -DNET_FLOAT adds."""
    for seed in range(8):
        path = write(random_program(np.random.default_rng(seed), 20), tmp_path / "net.c")
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        yield re.sub(r"#ifdef NET_FLOAT.*?#endif|#define NET_\w+_SCALE [^\n]*", "", text, flags=re.S)


def shifts_of_signed(text):
    """Returns the operands of right shifts that are not declared as unsigned."""
    found = []
    for match in re.finditer(r"(\w+|\))\s*>>", text):
        operand = match[1]
        if operand == ")":  # the first name after the bracket that opens
            depth, at = 0, match.start(1)
            while (depth := depth + {")": 1, "(": -1}.get(text[at], 0)) != 0:
                at -= 1
            operand = re.search(r"[a-z]\w*", text[at:])[0]
        if not re.search(rf"\buint(?:32|64)_t {operand}\b", text):
            found.append(operand)
    return found


def test_nothing_is_left_to_the_compiler(tmp_path):
    """No float, no right shift of a negative number, no memory but the arena, no header but two."""
    named = set()
    for text in texts(tmp_path):
        assert re.findall(r"\b(?:float|double|long|malloc|real)\b|\d\.\d", text) == []
        assert shifts_of_signed(text) == []
        assert set(re.findall(r"#include (\S+)", text)) <= {"<stdint.h>", "<string.h>", "<arm_mve.h>", "<arm_acle.h>"}
        named |= set(re.findall(r"^NOINLINE void (\w+)\(", text, re.M))
    assert {"convolve_int8", "convolve_channels_int8", "dense_int8", "add_int8", "look_up", "copy_all"} <= named
    assert shifts_of_signed(text.replace("const uint64_t dividend", "const int64_t dividend")) == ["dividend"] * 3


def test_the_object_has_no_float_and_calls_no_library(tmp_path):
    machine = subprocess.run([CC, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    path = write(random_program(np.random.default_rng(0), 20), tmp_path / "net.c")
    flags = ["-mgeneral-regs-only"] if machine.startswith("x86_64") else []  # no registers of floats
    object_ = compile_c(path, *STRICT, "-O2", *flags, "-c", shared=False)
    undefined = subprocess.run(["nm", "-u", object_], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"U (\w+)", undefined)) <= {"memcpy", "memset", "memcmp", "_GLOBAL_OFFSET_TABLE_"}
    assert (
        "%xmm" not in subprocess.run([CC, "-S", "-O2", *flags, path, "-o", "-"], capture_output=True, text=True).stdout
    )


def test_the_header_is_c_and_cplusplus(tmp_path):
    write(random_program(np.random.default_rng(0)), tmp_path / "net.c", header=True, arena="argument")
    for language in (("-x", "c", "-std=c99"), ("-x", "c++", "-std=c++98")):
        flags = ("-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-DNET_FLOAT", "-DNET_TEST")
        subprocess.run([CC, *language, *flags, tmp_path / "net.h"], check=True)


# ---- inputs and scores


@pytest.mark.parametrize("equal", [True, False])
def test_real_inputs_and_scores(equal, tmp_path, rng):
    """Numbers at and around the steps of the quantization, and beyond it; each score is one product of float32."""
    factors, offsets = rng.uniform(0.1, 30, 3), rng.uniform(-40, 40, 3)
    factors[:], offsets[:] = (factors[0], offsets[0]) if equal else (factors, offsets)
    identity = lambda label, inputs: p.Rearrange(label, inputs, np.arange(3, dtype=np.int32))  # noqa: E731
    program = program_of((3, 1, 1), (identity, (0,), (3, 1, 1)), factors=factors, offsets=offsets)
    library = CompiledProgram(program, tmp_path).library
    library.net_quantize.argtypes, library.net_quantize.restype = (ctypes.c_double, ctypes.c_int), ctypes.c_int8
    library.net_score.argtypes, library.net_score.restype = (ctypes.c_int8,), ctypes.c_float
    steps = (np.arange(-132, 132)[:, None] - offsets) / factors
    x = np.concatenate([steps, np.nextafter(steps, np.inf), np.nextafter(steps, -np.inf), rng.normal(0, 9, (500, 3))])
    x = np.concatenate([x, np.full((1, 3), 1e300), np.full((1, 3), -1e300)])[:, :, None, None]
    expected = reference_integer.quantize_input(program.input, x)
    found = [library.net_quantize(value, c) for one in x[..., 0, 0].tolist() for c, value in enumerate(one)]
    assert np.array_equal(np.array(found).reshape(-1, 3), expected[..., 0, 0])
    q = np.arange(-128, 128)
    assert [library.net_score(int(n)) for n in q] == (np.float32(0.25) * (q + 3).astype(np.float32)).tolist()
    bytes_ = np.arange(256).repeat(3).reshape(256, 3, 1, 1).astype(np.uint8)
    quantized = reference_integer.quantize_input(program.input, bytes_)
    assert np.array_equal(CompiledProgram(program, tmp_path).predict(bytes_), quantized)
    assert ("_starts[i]" in write(program, tmp_path / "net.c").read_text()) != equal


# ---- the file


def test_the_comment_states_the_costs(tmp_path):
    weights = np.ones((4, 2, 3, 3))
    steps = [(convolution(weights), (0,), (4, 6, 6)), (convolution(np.ones((5, 4, 6, 6))), (1,), (5, 1, 1))]
    factors = np.array([1.5, 2.5])  # each channel has a table of bytes
    text = write(program_of((2, 8, 8), *steps, factors=factors), tmp_path / "net.c").read_text()
    assert f"multiply-adds of a prediction: {4 * 36 * 18 + 5 * 144}" in text
    tables = re.findall(r"^static const (u?int\d+)_t net_(?!expected)\w+\[(\d+)\] = ", text, re.M)
    assert f"tables {sum(int(n) * np.dtype(kind).itemsize for kind, n in tables)} bytes; arena " in text
    assert text.count("_shifts[") == 2  # of each layer; the multipliers of the first are among those of the second
    assert "0, Layer: sum of products, (2, 8, 8) -> (4, 6, 6)" in text


def test_the_arena_and_the_tables_elsewhere(tmp_path, rng):
    program = random_program(np.random.default_rng(5))
    arguments = {"arena": "argument", "weights": "inc", "header": True, "keep_values": True, "name": "net"}
    path = write(program, tmp_path / "own.c", **arguments, classes=["a", "b"], names_classes=True, metadata={"k": 1})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["own.c", "own.h", "own.inc"]
    library = ctypes.CDLL(str(compile_c(path, *STRICT, "-O1", "-DNET_TEST")))
    assert library.net_test() == 0
    q = draw_inputs(rng, program, 1)
    size = int(re.search(r"#define NET_ARENA (\d+)", path.read_text())[1])
    arena, scores = np.zeros(size, np.int8), np.zeros(program.values[-1].shape, np.int8)
    library.net_predict(*(array.ctypes.data_as(ctypes.c_void_p) for array in (q, scores, arena)))
    values = reference_integer.run(program, q)
    assert np.array_equal(scores, values[-1][0])
    rows = re.findall(r'^  \{"(.*)", (\d+), (\d+), (\d+)\}', path.read_text(), re.M)
    assert len(rows) == len(program.operations)
    for (label, *row), operation, value in zip(rows, program.operations, values[1:], strict=True):
        start, pixels, channels = map(int, row)
        assert label == operation.label
        kept = arena[start : start + pixels * channels].reshape(pixels, channels).T
        assert np.array_equal(kept.ravel(), value[0].ravel())


def test_sums_that_may_not_fit_are_refused(tmp_path):
    def add(label, inputs):
        return p.Add(label, inputs, (2**23, 2**23), 10, p.LOW, p.HIGH)

    program = program_of((2, 8, 8), (convolution(np.ones((1, 2, 1, 1)), 2**31 - 258), (0,), (1, 8, 8)))
    with pytest.raises(ValueError, match=r"0, Layer: expected sums of 32 bits, at most 2147483647, got .* 2147483652"):
        write(program, tmp_path / "net.c")
    with pytest.raises(ValueError, match="0, Layer: expected sums of 32 bits"):
        write(program_of((2, 8, 8), (add, (0, 0), (2, 8, 8))), tmp_path / "net.c")
    with pytest.raises(TypeError, match="program: expected a Program, got dict"):
        export_program({}, lambda q: q, tmp_path / "net.c")
    with pytest.raises(ValueError, match="arena: expected 'static' or 'argument'"):
        write(random_program(np.random.default_rng(0)), tmp_path / "net.c", arena="heap")
    assert list(tmp_path.iterdir()) == []


def test_its_own_test_sees_every_table(tmp_path):
    """A changed first number of each, in a net that hides none."""
    rng = np.random.default_rng(0)
    steps = [
        (convolution(rng.integers(-127, 128, (6, 3, 3, 3)), 9, 2**30, 37), (0,), (6, 6, 6)),
        (convolution(rng.integers(-127, 128, (6, 1, 3, 3)), -9, 2**30, 37, groups=6), (1,), (6, 4, 4)),
        (lambda label, inputs: p.Lookup(label, inputs, np.arange(-128, 128).astype(np.int8)[::-1]), (2,), (6, 4, 4)),
        (convolution(rng.integers(-127, 128, (4, 6, 4, 4)), 99, 2**30, 39), (3,), (4, 1, 1)),
    ]
    text = write(program_of((3, 8, 8), *steps), tmp_path / "net.c").read_text()
    found = re.findall(r"^static const u?int\d+_t (net_\d_\w+)\[\d+\] = \{\n(-?\d+)", text, re.M)
    assert len(found) == 3 * 4 + 1 - 2  # two convolutions share multipliers and shifts
    for name, number in found:
        other = int(number) ^ 1 if "shifts" in name else -int(number) // 2 + 1
        changed = re.sub(rf"( {name}\[\d+\] = {{\n){number}\b", rf"\g<1>{other}", text, count=1)
        assert changed != text
        (tmp_path / "net.c").write_text(changed)
        program = compile_c(tmp_path / "net.c", "-O1", "-DNET_TEST", "-DNET_MAIN", shared=False)
        assert subprocess.run([program], check=False).returncode > 0, name
