"""Winograd's convolutions in C: transformed weights in tables or in memory, and direct sums in their place."""

import re
import subprocess

import numpy as np
import pytest
from c_export.compiled import Compiled, compile_c, same_bits

import minidl
from minidl import Sequential
from minidl.c_export import HAS_FMA
from minidl.layers import Conv2D, Dense, Flatten, Residual

pytestmark = pytest.mark.skipif(not HAS_FMA, reason="the bits of predict differ without fused multiply-add")
SHAPE = (16, 9, 8)


def small_model(dtype, scale=1.0, **arguments):
    """Returns a model of three convolutions by Winograd's algorithm, one of them in a branch."""
    layers = [
        Conv2D(32, 3, padding="same", **arguments),
        Residual(Conv2D(32, 3, padding="same", use_bias=False, **arguments)),
        Conv2D(16, 3, padding=1, **arguments),
    ]
    model = Sequential([*layers, Flatten(), Dense(3)], input_shape=SHAPE, dtype=dtype, seed=1)
    model.layers[0].weight.value *= scale
    return model


@pytest.mark.parametrize(
    ("dtype", "scale", "flags"),
    [
        ("float32", 1.0, ("-O1", "-DSOFT_FMA")),
        ("float32", 3e-37, ("-O1",)),
        ("float64", 3e-307, ("-O1",)),
        ("float64", 1.0, ("-O1", "-march=haswell")),
    ],
)
def test_weights_transformed_in_c(dtype, scale, flags, tmp_path, rng):
    """They have the bits of those in tables, also where results are subnormal, in the first call and in later ones."""
    model, X = small_model(dtype, scale), rng.standard_normal((2, *SHAPE)).astype(dtype)
    exported = Compiled(model, tmp_path, *flags, winograd="memory")
    for _ in range(2):
        assert same_bits(exported.predict(X), model.predict(X))
    assert exported.test() == 0


def test_transformed_weights_of_the_caller(tmp_path, rng):
    """They are computed once, in memory as large as the header says, and only read later."""
    model, X = small_model("float32"), rng.standard_normal((1, *SHAPE)).astype("f4")
    minidl.export_c(model, tmp_path / "net.c", arena="argument", winograd="memory", header=True)
    main = tmp_path / "main.c"
    main.write_text("""
        #include <stdio.h>
        #include <stdlib.h>
        #include "net.c"
        int main(void) {
          static float x[NET_INPUTS], scores[NET_OUTPUTS];
          float *arena = malloc(sizeof(float) * NET_ARENA), *transformed = malloc(sizeof(float) * NET_TRANSFORMED);
          fread(x, sizeof x, 1, stdin);
          net_transform(transformed);
          for (int i = 0; i < 2; i++) {
            net_predict(x, scores, arena, transformed);
            fwrite(scores, sizeof scores, 1, stdout);
          }
          free(arena);
          free(transformed);
          return net_test();
        }
    """)
    options = ("-DNET_TEST", "-O1", "-fsanitize=address,undefined", "-Wno-unused-result")
    program = compile_c(main, *options, shared=False)
    out = subprocess.run([program], input=X.tobytes(), capture_output=True, check=True).stdout
    assert out == 2 * model.predict(X).tobytes()


def test_direct_sums(tmp_path, rng):
    """They have the bits of a model with `algorithm="direct"`, and no transformed weights."""
    X = rng.standard_normal((2, *SHAPE)).astype("f4")
    model, direct = small_model("float32"), small_model("float32", algorithm="direct")
    exported = Compiled(model, tmp_path, winograd="direct")
    assert same_bits(exported.predict(X), direct.predict(X))
    assert exported.test() == 0
    assert not same_bits(direct.predict(X), model.predict(X))
    text = exported.source.read_text()
    assert "winograd" not in text
    assert 'those of a model whose convolutions have `algorithm="direct"`' in text


def test_the_default_depends_on_the_size(tmp_path):
    """Tables up to 256 KiB of transformed weights, and where the functions take the arena."""

    def tables(filters, **arguments):
        model = Sequential([Conv2D(filters, 3)], input_shape=(16, 10, 10))
        minidl.export_c(model, tmp_path / "net.c", **arguments)
        text = (tmp_path / "net.c").read_text()
        assert ("net_transforms" in text) == ("and transformed weights" in text)
        return int(re.search(r"TABLE\(net_0_weight, (\d+)\)", text)[1]) == 36 * 16 * filters

    assert tables(112)  # 36 * 16 * 112 * 4 bytes are 252 KiB
    assert not tables(128)
    assert tables(128, arena="argument")
    assert tables(128, winograd="tables")
    assert not tables(16, winograd="memory", arena="argument")


def test_models_without_the_algorithm_have_no_memory_for_it(tmp_path):
    model = Sequential([Conv2D(4, 3), Flatten(), Dense(3)], input_shape=(1, 8, 8))
    minidl.export_c(model, tmp_path / "net.c")
    written = (tmp_path / "net.c").read_bytes()
    minidl.export_c(model, tmp_path / "net.c", winograd="memory")
    assert (tmp_path / "net.c").read_bytes() == written


@pytest.mark.parametrize("value", ["auto", True, 3])
def test_other_choices_are_refused(value, tmp_path):
    with pytest.raises(ValueError, match="winograd: expected"):
        minidl.export_c(small_model("float32"), tmp_path / "net.c", winograd=value)
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_unchanged(tmp_path):
    model = small_model("float32")
    X = np.ones((1, *SHAPE), "f4")
    before = model.predict(X)
    minidl.export_c(model, tmp_path / "net.c", winograd="direct")
    assert all(layer.uses_winograd for layer in (model.layers[0], model.layers[2]))
    assert same_bits(model.predict(X), before)
