"""Winograd's convolutions: rounding errors beside those of direct sums and PyTorch, trained nets, speed and memory.

README.md in this folder describes the method. The default takes about 20 minutes on two quiet cores: 14 for 1,000
geometries, two nets, trained on 4,000 images for four epochs, and 20 trainings, on MNIST for two epochs or on 4,000
images for five; 2.5 for the speed of three nets; 3 for convolutions of small images.
"""

import argparse

import numpy as np
from measure import limit_threads, positive, run_parts, usable_cores
from nets import ALL_NETS
from winograd_errors import RESULTS, Convolution, columns, find_sides, format_row, measure_errors, ratio
from winograd_nets import measure_nets
from winograd_speed import SMALL, compare_small, compare_speed
from winograd_training import TASKS, compare_training

NONZERO, CHANNELS, FILTERS = (1.0, 0.5, 0.25, 0.05), (16, 64, 256), 64
SIZES, IMAGES = (8, 12, 16, 24, 32, 96), 16


def draw(rng, x, filters, padding):
    """Returns a convolution of x with weights in the scale of He, without biases, and normal dy."""
    n, channels, height, width = x.shape
    top, bottom, left, right = padding
    w = rng.standard_normal((filters, channels, 3, 3), "f4") * np.float32(np.sqrt(2 / (9 * channels)))
    b = np.zeros(filters, "f4")
    dy = rng.standard_normal((n, filters, height + top + bottom - 2, width + left + right - 2), "f4")
    return Convolution(x, w, b, dy, padding)


def random_convolutions(seed, count):
    """Yields random geometries that suit Winograd's algorithm, on two images as after a ReLU."""
    rng = np.random.default_rng(seed)
    while count:
        channels, filters = (16 * rng.integers(1, 1 + rng.choice([2, 4, 12]), 2)).tolist()
        x = np.maximum(rng.standard_normal((2, channels, *rng.integers(10, 24, 2)), "f4"), 0)
        conv = draw(rng, x, filters, tuple(rng.integers(0, 3, 4).tolist()))
        if conv.suits_winograd:
            count -= 1
            yield conv


def summarize_geometries(found, sides):
    """Returns the errors over all geometries, in the form of those of one, and the ratios of Winograd to direct."""
    results = {}
    for result in RESULTS:
        errors = {}
        for side in sides:
            rms, largest = np.transpose([geometry[result][side] for geometry in found])
            errors[side] = [float(np.sqrt(np.mean(rms**2))), float(largest.max())]
        worst = [max(ratio(geometry[result], index) for geometry in found) for index in (0, 1)]
        results[result] = {"errors": errors, "ratio": ratio(errors), "worst_rms": worst[0], "worst_largest": worst[1]}
    return results


def measure_geometries(args):
    """Prints errors over random geometries, and for inputs with fewer and fewer numbers that are not zero."""
    sides = find_sides()
    found = [measure_errors(conv, sides, args.threads) for conv in random_convolutions(0, args.geometries)]
    results = summarize_geometries(found, sides)
    print(f"\n{args.geometries:,} random geometries: errors in 1e-7 of the exact result's root mean square\n")
    print(columns(sides, "RMS", "worst RMS", "worst max"))
    for result in RESULTS:
        facts = results[result]
        ratios = facts["ratio"], facts["worst_rms"], facts["worst_largest"]
        print(format_row(result, facts["errors"], *ratios))
    results["nonzero"] = measure_zeros(args, sides)
    results["sizes"] = measure_sizes(args, sides)
    results["small"] = measure_small(args, sides)
    return results


def measure_zeros(args, sides):
    """Prints the ratio of y's root mean square errors for inputs of which a part is not zero."""
    rng, results = np.random.default_rng(1), {}
    print(f"\ny of 4 images, 16x16, {FILTERS} filters, by non-zero inputs: RMS error, winograd / direct\n")
    print(f"{'channels':12}" + "".join(f"{part:>10.0%}" for part in NONZERO))
    for channels in CHANNELS:
        ratios = []
        for part in NONZERO:
            x = np.abs(rng.standard_normal((4, channels, 16, 16), "f4"))
            x[rng.random(x.shape) >= part] = 0
            ratios.append(ratio(measure_errors(draw(rng, x, FILTERS, (1, 1, 1, 1)), sides, args.threads)["y"]))
        results[str(channels)] = dict(zip(map(str, NONZERO), ratios, strict=True))
        print(f"{channels:<12}" + "".join(f"{value:10.2f}" for value in ratios), flush=True)
    return results


def measure_sizes(args, sides):
    """Prints the errors of dw for images of several sizes."""
    rng, results = np.random.default_rng(2), {}
    print(f"\ndw of {IMAGES} images, 32 channels, 32 filters: errors in 1e-7 of the exact dw's root mean square\n")
    print(columns(sides, "RMS", "largest"))
    for size in SIZES:
        x = np.maximum(rng.standard_normal((IMAGES, 32, size, size), "f4"), 0)
        errors = measure_errors(draw(rng, x, 32, (1, 1, 1, 1)), sides, args.threads)["dw"]
        results[str(size)] = errors
        print(format_row(f"{size}x{size}", errors, ratio(errors), ratio(errors, 1)), flush=True)
    return results


def measure_small(args, sides):
    """Prints the errors of small images for which "auto" is the direct sum."""
    rng, results = np.random.default_rng(3), {}
    for channels, size in SMALL:
        name = f"{channels}x{size}x{size} to {channels}"
        print(f"\n{name}, {IMAGES} images: errors in 1e-7 of the exact result's root mean square\n")
        print(columns(sides, "RMS", "largest"))
        x = np.maximum(rng.standard_normal((IMAGES, channels, size, size), "f4"), 0)
        results[name] = measure_errors(draw(rng, x, channels, (1, 1, 1, 1)), sides, args.threads)
        for result, errors in results[name].items():
            print(format_row(result, errors, ratio(errors), ratio(errors, 1)), flush=True)
    return results


PARTS = {
    "geometries": measure_geometries,
    "nets": measure_nets,
    "training": compare_training,
    "speed": compare_speed,
    "small": compare_small,
}


def main():
    """Measures the requested parts, prints them and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--geometries", type=positive, default=1000)
    parser.add_argument("--nets", nargs="+", choices=["vgg", "resnet20"], default=["vgg", "resnet20"])
    parser.add_argument("--data", nargs="+", choices=TASKS, default=["mnist", "shapes"], help="of part training")
    parser.add_argument("--seeds", type=positive, default=5, help="of part training, at least 2 (default 5)")
    parser.add_argument("--images", type=positive, help="only the first images of each data set; default: all")
    parser.add_argument("--speed-nets", nargs="+", choices=ALL_NETS, default=["cnn", "vgg", "resnet20"])
    parser.add_argument("--batch-sizes", nargs="+", type=positive, default=[1, 16, 64], help="of parts speed and small")
    parser.add_argument("--rounds", type=positive, default=9, help="of parts speed and small (default 9)")
    parser.add_argument("--threads", type=positive, default=usable_cores(), help="default: all cores")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("--seeds: expected at least 2, for a spread")
    limit_threads(args.threads)
    run_parts(PARTS, args)


if __name__ == "__main__":
    main()
