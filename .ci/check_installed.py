"""Checks an installed minidl: the installed files, a custom kernel, training, and export to C.

`make sdist-check` runs this in a fresh environment, in a folder without the source.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import minidl
import minidl_c
from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD


def check_files() -> list[str]:
    """Checks that kernels and headers are installed; returns the names of the modules with a .pxd."""
    package = Path(minidl_c.__file__).parent
    assert package.is_relative_to(sys.prefix), f"{package} is not in {sys.prefix}"
    assert Path(minidl.__file__).is_relative_to(sys.prefix), minidl.__file__
    assert (package.parent / "minidl" / "py.typed").exists()
    assert list((package / minidl_c.isa).glob("kernels/*.so")), f"no kernels in {package / minidl_c.isa}"
    assert list(package.glob("simd/*.h")), f"no headers in {package}"
    return sorted(".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.pxd"))


def check_user_kernel(names: list[str]) -> None:
    """Checks that a user's module can cimport every module, which needs all headers."""
    lines = [f"cimport minidl_c.{name}" for name in names]
    Path("user_kernel.pyx").write_text("\n".join([*lines, "answer = 42", ""]))
    flags = minidl_c.build_flags()
    assert "-ffp-contract=off" in flags["extra_compile_args"], flags
    setup(
        name="user_kernel",
        ext_modules=cythonize(
            Extension("user_kernel", ["user_kernel.pyx"], **flags),
            include_path=[minidl_c.get_include()],
            language_level=3,
            quiet=True,
        ),
        script_args=["--quiet", "build_ext", "--inplace"],
    )
    sys.path.insert(0, os.getcwd())
    assert import_module("user_kernel").answer == 42


def check_training() -> tuple[Sequential, float]:
    """Trains a small convolutional net on the embedded digits; returns it and its test accuracy."""
    digits = load_digits()
    layers = [Rescale(1 / 16), Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2)]
    layers += [Flatten(), Dense(64), ReLU(), Dense(10)]
    trainer = Trainer(
        Sequential(layers, input_shape=(1, 8, 8), seed=0),
        loss="softmax_cross_entropy",
        optimizer=SGD(0.05, momentum=0.9),
        metrics=["accuracy"],
        seed=0,
    )
    trainer.fit(digits.X_train, digits.y_train, epochs=15, batch_size=32, verbose=0)
    accuracy = trainer.evaluate(digits.X_test, digits.y_test)["accuracy"]
    assert accuracy >= 0.96, f"test accuracy {accuracy}"
    return trainer.model, accuracy


def check_c_file(model: Sequential) -> None:
    """Checks that a model is exported as C, which gives the scores of `predict`."""
    minidl.export_c(model, "net.c")
    command = "cc -O2 -ffp-contract=off -DNET_TEST -DNET_MAIN net.c -lm -o net"
    subprocess.run(command.split(), check=True)
    subprocess.run(["./net"], check=True)


def main() -> None:
    """Runs all checks; raises AssertionError if one fails."""
    info = minidl_c.build_info()
    if os.environ.get("MINIDL_NO_OPENMP") == "1":
        assert not info["openmp"], info
    print(minidl.show_config())
    names = check_files()
    check_user_kernel(names)
    model, accuracy = check_training()
    check_c_file(model)
    print(
        f"installed minidl {minidl.__version__}, {info['isa']}, OpenMP {info['openmp']}: "
        f"{len(names)} modules, a user's kernel builds, test accuracy on digits {accuracy:.1%}, C file: equal bits"
    )


if __name__ == "__main__":
    main()
