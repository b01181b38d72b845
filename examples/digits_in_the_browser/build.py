"""LeNet-5 as a web page: trained here, exported as one C file, compiled to WebAssembly, with the bits of predict.

Run it with: python examples/digits_in_the_browser/build.py (--help lists the options), and open build/digits.html. The
compiler is clang, if it can make WebAssembly, or else that of the package ziglang. Without MNIST, the net learns the
embedded 8x8 digits, enlarged.
"""

import argparse
import base64
import importlib.util
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from mnist_lenet import one_cycle  # noqa: E402
from models import lenet5  # noqa: E402

from minidl import Sequential, Trainer, export_c  # noqa: E402
from minidl.datasets import Bunch, DatasetUnavailable, load_digits, load_mnist  # noqa: E402
from minidl.layers import RandomRotation, RandomShift, RandomZoom  # noqa: E402
from minidl.optimizers import SGD  # noqa: E402

BATCH_SIZE, PEAK = 64, 0.08
SAMPLES = 10  # of each digit, on the page
FLAGS = ["-mexec-model=reactor", "-O3", "-ffp-contract=off", "-DDIGITS_SOFT_FMA", "-s"]  # a reactor has no main


def enlarge(images):
    """Returns 8x8 digits, 0 to 16, as MNIST has them: bilinear to 20x20, the centre of mass in the middle of 28x28."""
    at = np.clip((np.arange(20) + 0.5) * 8 / 20 - 0.5, 0, 7)
    weights = np.maximum(0, 1 - abs(at[:, None] - np.arange(8)))
    large = np.pad(weights @ (images[:, 0] * (255 / 16)) @ weights.T, ((0, 0), (4, 4), (4, 4)))
    index, mass = np.arange(28), large.sum(axis=(1, 2))
    shifts = [np.rint(14 - large.sum(axis=axis) @ index / mass).astype(int) for axis in (2, 1)]
    moved = [np.roll(image, shift, axis=(0, 1)) for image, shift in zip(large, np.transpose(shifts), strict=True)]
    return np.rint(moved).astype(np.uint8)[:, None]


def load(digits):
    """Returns the data, its name and the number of epochs."""
    if not digits:
        try:
            print("Loading MNIST (the first time takes up to a minute) ...", flush=True)
            return load_mnist(), "MNIST", 6
        except DatasetUnavailable as error:
            print(f"MNIST is out of reach: {error}\nSo this run learns the embedded 8x8 digits.")
    data = load_digits()
    data = Bunch(data, X_train=enlarge(data.X_train), X_test=enlarge(data.X_test))
    return data, "scikit-learn's 8x8 digits, enlarged", 60


def train(data, epochs, seed):
    """Returns LeNet-5 and its test accuracy. Each image is turned, zoomed and shifted a little in each step."""
    augmentation = [RandomRotation(12), RandomZoom(0.12), RandomShift(1)]
    model = Sequential([*augmentation, *lenet5(input_shape=None).layers], (1, 28, 28), seed)
    rate = one_cycle(PEAK, epochs * math.ceil(len(data.X_train) / BATCH_SIZE))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(rate, momentum=0.9, nesterov=True), ["accuracy"], seed)
    trainer.fit(data.X_train, data.y_train, epochs=epochs, batch_size=BATCH_SIZE)
    return model, trainer.evaluate(data.X_test, data.y_test)["accuracy"]


def find_compiler():
    """Returns the command of a compiler that makes WebAssembly; None if there is none. It compiles a file to see."""
    commands = []
    if shutil.which("clang"):
        commands.append(["clang", "--target=wasm32-wasi"])
    if importlib.util.find_spec("ziglang"):
        commands.append([sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi"])  # slow the first time
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <string.h>\nvoid copy(char *x, const char *y, int n) { memcpy(x, y, n); }\n")
        for command in commands:
            print(f"Trying {' '.join(command[-4:])} ...", flush=True)
            probe = [*command, *FLAGS, "-Wl,--export=copy", str(source), "-o", str(source.with_suffix(".wasm"))]
            if subprocess.run(probe, capture_output=True).returncode == 0:
                return command
    return None


def fnv1a(content):
    """Returns the hash FNV-1a of bytes, 64 bits, in hexadecimal digits."""
    state = 0xCBF29CE484222325
    for byte in content:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def fill(template, values):
    """Returns the template with {{name}} replaced by the value of each name."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def base64_of(content):
    return base64.b64encode(content).decode()


def main():
    """Trains, exports, compiles, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("build"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--epochs", type=int, help="default: 6 for MNIST, 60 for the 8x8 digits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", action="store_true", help="the embedded 8x8 digits, not MNIST")
    args = parser.parse_args()
    if args.epochs is not None and args.epochs < 1:
        parser.error(f"--epochs: expected at least 1, got {args.epochs}")
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("No compiler for WebAssembly: pip install ziglang")

    data, name, epochs = load(args.digits)
    epochs = args.epochs or epochs
    model, accuracy = train(data, epochs, args.seed)

    args.output.mkdir(parents=True, exist_ok=True)
    source, wasm, page = (args.output / f"digits.{suffix}" for suffix in ("c", "wasm", "html"))
    export_c(model, source, arena="argument", header=True, keep_values=True)
    files = [str(source), str(HERE / "page.c")]
    subprocess.run([*compiler, *FLAGS, f"-I{args.output}", *files, "-o", str(wasm)], check=True)

    chosen = np.concatenate([np.flatnonzero(data.y_test == digit)[:SAMPLES] for digit in range(10)])
    images = data.X_test[chosen]
    digest = fnv1a(model.predict(images).astype("<f4").tobytes())
    page_data = {
        "wasm": base64_of(wasm.read_bytes()),
        "images": base64_of(images.tobytes()),
        "samples": SAMPLES,
        "hash": digest,
    }
    html = fill(
        (HERE / "page.html").read_text(encoding="utf-8"),
        {
            "style": (HERE / "page.css").read_text(encoding="utf-8"),
            "script": (HERE / "page.js").read_text(encoding="utf-8"),
            "data": json.dumps(page_data),
            "hash": digest,
            "parameters": f"{model.summary().parameters:,}",
            "training": f"{len(data.X_train):,} images of {name}",
            "accuracy": f"{accuracy:.1%}".replace("%", " %"),
            "tested": f"{len(data.X_test):,}",
            "size": f"{wasm.stat().st_size / 1000:.0f} kB",
        },
    )
    page.write_text(html, encoding="utf-8")
    print(f"\nTest accuracy {accuracy:.2%} after {epochs} epochs; hash of the scores of {len(images)} images {digest}")
    print(f"WebAssembly {wasm.stat().st_size:,} bytes, page {page.stat().st_size:,} bytes: open {page}")


if __name__ == "__main__":
    main()
