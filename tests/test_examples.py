"""Runs every example, with settings that take seconds."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from example_runs import ROOT, accuracy_in, run, start_example, without

from minidl import Sequential
from minidl.c_export import HAS_FMA
from minidl.datasets import load_digits

DATA_HOME = Path(os.environ.get("SCIKIT_LEARN_DATA") or "~/scikit_learn_data").expanduser()
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_every_example_is_tested():
    files = (
        "test_examples.py",
        "test_example_cifar10.py",
        "test_twin.py",
        "test_segmentation.py",
        "service_process.py",
    )
    tests = "".join(Path(__file__).with_name(name).read_text() for name in files)
    assert [path.name for path in EXAMPLES if f'("{path.name}"' not in tests] == []
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {"custom_kernel", "digits_in_the_browser"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_docstring_says_how_to_run_it(path):
    assert f"python examples/{path.name}" in path.read_text(encoding="utf-8")


def test_readme_lists_every_example_with_its_title():
    """The site takes the groups of its gallery from this list, and titles from docstrings."""
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- \[([\w.]+)\]\(([\w.]+)\): (.+)$", readme, re.M)
    titles = {path.name: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix('"""') for path in EXAMPLES}
    for path in (ROOT / "examples").glob("*/README.md"):
        titles[path.parent.name] = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    assert {link: title for _, link, title in rows} == titles and len(rows) == len(titles)
    assert all(name == link for name, link, _ in rows)


def test_mnist_lenet_on_digits(tmp_path):
    output = run("mnist_lenet.py", "--digits", "--epochs", "2", "--threads", "2", home=tmp_path)
    lines = re.findall(r"^epoch (\d)/2 .*loss .*accuracy .*val_accuracy .*images", output, re.M)
    assert lines == ["1", "2"]
    assert accuracy_in(output) > 60
    table = re.findall(r"^ +\d(?: +(?:\d+|\.)){10}$", output, re.M)
    assert len(table) == 10
    counts = [[int(c.replace(".", "0")) for c in row.split()[1:]] for row in table]
    assert sum(map(sum, counts)) == 355  # every test digit once
    right = sum(counts[i][i] for i in range(10))
    assert abs(100 * right / 355 - accuracy_in(output)) < 0.01
    assert "read as" in output
    saved = tmp_path / "lenet5.safetensors"
    assert f"The model is in {saved.name}" in output
    data = load_digits()
    predicted = Sequential.load(saved).predict(data.X_test).argmax(axis=1)
    assert abs(100 * (predicted == data.y_test).mean() - accuracy_in(output)) < 0.01


def test_mnist_lenet_without_network_says_so_and_learns_digits(tmp_path):
    path = tmp_path / "elsewhere.safetensors"
    output = run("mnist_lenet.py", "--epochs", "1", "--save", str(path), home=tmp_path)
    assert "MNIST is out of reach" in output and f"The model is in {path}" in output and path.exists()
    assert "epoch 1/1" in output


@pytest.mark.parametrize("epochs", ["0", "-1"])
def test_mnist_lenet_refuses_zero_epochs(epochs, tmp_path):
    done = start_example("mnist_lenet.py", "--digits", "--epochs", epochs, home=tmp_path)
    assert done.returncode == 2 and f"--epochs: expected at least 1, got {epochs}" in done.stderr


@pytest.mark.slow
def test_mnist_lenet_reaches_97_percent_of_digits(tmp_path):
    assert accuracy_in(run("mnist_lenet.py", "--digits", home=tmp_path)) >= 97


def test_custom_layer(tmp_path):
    output = run("custom_layer.py", home=tmp_path, epochs=2)
    assert "gradients are right" in output
    assert accuracy_in(output) > 60


def test_mnist_fast_without_network_says_so(tmp_path):
    done = start_example("mnist_fast.py", home=tmp_path)
    assert done.returncode == 1 and "MNIST is not in" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("mnist")
def test_mnist_fast_reaches_its_documented_accuracy():
    output = run("mnist_fast.py", home=DATA_HOME)
    assert float(re.search(r"test accuracy ([\d.]+)%, [\d.]+ s$", output, re.M)[1]) >= 99.0


def test_models(tmp_path):
    output = run("models.py", home=tmp_path)
    assert output.count("multiply-adds an example; training with batches of 64") == 5
    assert re.search(r"^resnet20\n", output, re.M) and "272,474 parameters" in output


def test_max_pool_batch(tmp_path):
    output = run("max_pool_batch.py", home=tmp_path)
    claims = re.findall(r"^  - .*\d", output, re.M)
    assert re.findall(r"^\((\w)\)", output, re.M) == list("abcdefghi")
    assert output.count("\n") <= 90 and len(claims) >= 40
    assert output.endswith(f"\nAll {output.count('  - ')} assertions passed.\n")


def test_batch_and_step(tmp_path):
    output = run("batch_and_step.py", home=tmp_path)
    assert re.findall(r"^\((\w)\)", output, re.M) == list("hi")
    assert output.endswith(f"\nAll {output.count('  - ')} assertions passed.\n")


# ---- a folder of images
def validation_accuracies(output):
    """Returns by augmentation the validation accuracy in per cent; checks that the best one is chosen."""
    rows = re.findall(r"^(\w.*\w) +training +[\d.]+%, validation ([\d.]+)%$", output, re.M)
    scores = {name: float(accuracy) for name, accuracy in rows}
    assert scores[re.search(r"^Augmentation: (.*)\. Test", output, re.M)[1]] == max(scores.values())
    return scores


def test_image_folder_draws_digits(tmp_path):
    output = run("image_folder.py", home=tmp_path, epochs=1)
    assert "1,442 training images of 10 classes: eight, five, four" in output
    assert list(validation_accuracies(output)) == ["none", "colours, crop, cutout", "the same and mirrored"]
    right = accuracy_in(output) / 100 * 355
    assert abs(right - round(right)) < 0.02  # over all test images


def write_folder(folder, classes):
    image_module = pytest.importorskip("PIL.Image")
    for i, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for n in range(10):
            image_module.new("RGB", (20, 24), (100 * i + n, 50, 200 - 100 * i)).save(folder / name / f"{n}.png")


def test_image_folder_of_a_user(tmp_path):
    for part in ("train", "test"):
        write_folder(tmp_path / part, ["blue", "red"])
    output = run("image_folder.py", "--folder", ".", "--size", "16", "--epochs", "5", home=tmp_path)
    assert output.startswith("20 training images of 2 classes: blue, red\n")
    assert len(validation_accuracies(output)) == 3 and output.endswith("of 20 images\n")


def test_image_folder_says_what_is_wrong_with_a_folder(tmp_path):
    done = start_example("image_folder.py", "--folder", "missing", home=tmp_path)
    assert done.returncode == 1 and "No such file" in done.stderr and "Traceback" not in done.stderr
    write_folder(tmp_path / "train", ["blue", "red"])
    write_folder(tmp_path / "test", ["blue", "green"])
    done = start_example("image_folder.py", "--folder", ".", home=tmp_path)
    assert done.returncode == 1 and "the same classes in train and test" in done.stderr


def test_image_folder_without_pillow_says_so(tmp_path):
    done = start_example("image_folder.py", home=tmp_path, before=without("PIL"))
    assert done.returncode == 1 and done.stderr == 'Pillow is not installed: pip install "minidl[images]"\n'


@pytest.mark.slow
def test_image_folder_rejects_mirrored_digits(tmp_path):
    output = run("image_folder.py", home=tmp_path)
    scores = validation_accuracies(output)
    assert max(scores, key=scores.get) == "colours, crop, cutout" and accuracy_in(output) > 87


# ---- plots
@pytest.mark.slow
def test_seeing(tmp_path):
    pytest.importorskip("matplotlib")
    output = run("seeing.py", "new/folder", home=tmp_path, epochs=3)
    assert accuracy_in(output) > 40
    names = re.findall(r'^save\(.*, "(\w+)"\)$', (ROOT / "examples" / "seeing.py").read_text(encoding="utf-8"), re.M)
    assert {path.stem for path in (tmp_path / "new" / "folder").iterdir()} == set(names) and len(names) == 8
    for path in (tmp_path / "new" / "folder").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG") and 5e3 < path.stat().st_size < 1e5


@pytest.mark.slow
def test_max_pool_batch_saves_its_plots(tmp_path):
    pytest.importorskip("matplotlib")
    assert run("max_pool_batch.py", "--plot", "routing.png", home=tmp_path).endswith("assertions passed.\n")
    assert (tmp_path / "routing.png").read_bytes().startswith(b"\x89PNG")


# ---- per-example gradients
def wrong_labels_found(output):
    """Returns by seed how many wrong labels the gradient norms find."""
    return [int(result) for result in re.findall(r"^ +\d+ +(\d+) +\d+$", output, re.M)]


def test_mislabelled_on_digits(tmp_path):
    output = run("mislabelled.py", "--data", "digits", "--seeds", "0", "3", "4", home=tmp_path)
    assert "10 of 1,000 labels are flipped. Of these, found among the first 20:" in output
    assert min(wrong_labels_found(output)) >= 9 and len(wrong_labels_found(output)) == 3


@pytest.mark.slow
def test_mislabelled_plots_its_result(tmp_path):
    pytest.importorskip("matplotlib")
    output = run("mislabelled.py", "--seeds", "0", "--picture", "top.png", home=tmp_path, epochs=3)
    assert "MNIST is out of reach" in output and "are in top.png" in output
    assert (tmp_path / "top.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.usefixtures("mnist")
def test_mislabelled_finds_the_documented_number():
    result = wrong_labels_found(run("mislabelled.py", home=DATA_HOME))
    assert min(result) >= 40 and len(result) == 3


# ---- custom parts
def test_custom_parts(tmp_path):
    output = run("custom_parts.py", home=tmp_path)
    assert "completes the fit that was interrupted" in output
    assert output.endswith("to the last bit: True\n")
    assert float(re.search(r"'accuracy': ([\d.]+)", output)[1]) > 0.95


@pytest.mark.slow
def test_transfer_learning(tmp_path):
    output = run("transfer_learning.py", home=tmp_path)
    nothing, frozen, trained_on = (float(result) for result in re.findall(r"([\d.]+)%", output))
    assert nothing < frozen < trained_on


# ---- with scikit-learn
@pytest.mark.slow
def test_categories(tmp_path):
    output = run("categories.py", home=tmp_path)
    scores = [float(score) for score in re.findall(r"R² (\d\.\d+) after", output)]
    assert len(scores) == 3 and scores[2] == max(scores) > 0.93
    assert output.endswith(f"Test R² of the net: {scores[2]:.3f}\n")


def test_sklearn_pipeline(tmp_path):
    assert accuracy_in(run("sklearn_pipeline.py", home=tmp_path)) > 97


@pytest.mark.slow
def test_sklearn_grid_search(tmp_path):
    output = run("sklearn_grid_search.py", home=tmp_path)
    result = re.findall(r"^(dense_net|conv_net) +lr ([\d.]+) +accuracy ([\d.]+)%", output, re.M)
    assert len(result) == len(set(result)) == 4
    best = max(result, key=lambda row: float(row[2]))
    assert f"The best: {best[0]}, lr {best[1]}" in output


@pytest.mark.slow
def test_sklearn_dask(tmp_path):
    pytest.importorskip("distributed")
    output = run("sklearn_dask.py", home=tmp_path)
    workers = re.findall(r"^worker (tcp://\S+): .*, threads: 1$", output, re.M)
    assert len(set(workers)) == 2
    result = re.findall(r"^(dense_net|conv_net) +lr ([\d.]+) +accuracy ([\d.]+)%", output, re.M)
    assert len(result) == len(set(result)) == 4
    assert re.findall(r"the same, to the last bit: (\w+)$", output, re.M) == ["True", "True"]


def test_sklearn_dask_without_dask_says_so(tmp_path):
    done = start_example("sklearn_dask.py", home=tmp_path, before=without("distributed"))
    assert done.returncode == 1 and done.stderr == 'dask is not installed: pip install "dask[distributed]"\n'


@pytest.mark.slow
def test_sklearn_features(tmp_path):
    output = run("sklearn_features.py", home=tmp_path)
    pairs = re.findall(r"pixels ([\d.]+)%, features ([\d.]+)%", output)
    assert len(pairs) == 3
    assert all(float(pixels) < float(features) for pixels, features in pairs)


def accuracies_of_signals(output):
    """Returns by number of training signals the test accuracies in per cent, by model."""
    parts = re.split(r"^([\d,]+) training signals\n", output, flags=re.M)[1:]
    rows = [re.findall(r"^ +(\w+) +([\d.]+)%, +[\d.]+ s$", part, re.M) for part in parts[1::2]]
    return {n: {name: float(score) for name, score in some} for n, some in zip(parts[::2], rows, strict=True)}


def test_signals(tmp_path):
    output = run("signals.py", "--sizes", "30", home=tmp_path, epochs=5)
    assert list(accuracies_of_signals(output)) == ["30"]
    assert list(accuracies_of_signals(output)["30"].values())[-1] == accuracy_in(output)


@pytest.mark.slow
def test_signals_are_learned_from_fewer_examples(tmp_path):
    for scores in accuracies_of_signals(run("signals.py", "--sizes", "30", "100", home=tmp_path, epochs=600)).values():
        assert len(scores) == 4 and max(scores, key=scores.get) == "SequentialClassifier"


def test_signals_have_the_shapes_of_their_classes():
    sys.path.insert(0, str(ROOT / "examples"))
    import signals

    X, y = signals.draw_signals(3000, seed=3)
    assert X.shape == (3000, 128) and X.dtype == np.float32
    assert np.array_equal(X, signals.draw_signals(3000, seed=3)[0])
    early, late = X[:, 34:44].mean(axis=1), X[:, 55:65].mean(axis=1)
    slope = {name: (late - early)[y == name].mean() for name in signals.CLASSES}
    assert slope["bell"] > 0 > slope["cylinder"] > slope["funnel"]  # some signals end early, so cylinders fall, too
    assert abs(X[:, :16].mean()) < 0.02 and abs(X[:, :16].std() - 1) < 0.02  # only noise


def test_sklearn_partial_fit(tmp_path):
    output = run("sklearn_partial_fit.py", home=tmp_path)
    assert len(re.findall(r"^after +\d+00 examples: ", output, re.M)) == 17
    assert float(re.search(r"last portions ([\d.]+)%", output)[1]) > 85


def test_beyond_memory(tmp_path):
    output = run("beyond_memory.py", home=tmp_path)
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)", output, re.M)]
    assert losses == sorted(losses, reverse=True) and len(losses) == 5
    assert accuracy_in(output) > 85


def test_distributed_mnist_on_one_rank(tmp_path):
    """On several ranks: tests/mpi/test_same_bits.py."""
    pytest.importorskip("mpi4py.MPI")
    output = run("distributed_mnist.py", "--digits", "--epochs", "2", home=tmp_path).splitlines()
    assert re.fullmatch(r"Test accuracy [\d.]+% in 1 processes, weights \w{16}", output[-1]) and len(output) == 3
    again = run("distributed_mnist.py", "--digits", "--epochs", "2", "--resume", home=tmp_path).splitlines()
    assert again == ["nothing to do: the saved fit is complete", output[-1]]


def test_sklearn_mnist_without_network_says_so(tmp_path):
    done = start_example("sklearn_mnist.py", home=tmp_path)
    assert done.returncode == 1 and "MNIST is not in" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("mnist")
def test_sklearn_mnist():
    """How much they learn in the time depends on the machine; both must learn, for the requested time."""
    output = run("sklearn_mnist.py", "--seconds", "4", home=DATA_HOME)
    result = re.findall(r"test accuracy ([\d.]+)% after ([\d.]+) s", output)
    assert len(result) == 2 and all(float(accuracy) > 30 and float(took) >= 4 for accuracy, took in result)


# ---- PyTorch
@pytest.mark.oracle
def test_from_torch(tmp_path):
    output = run("from_torch.py", home=tmp_path)
    assert "The weights are the same, to the last bit: True" in output
    differences = [float(result) for result in re.findall(r"by at most (\S+)", output)]
    assert len(differences) == 2 and max(differences) < 1e-4
    assert accuracy_in(output) > 90


def test_from_torch_without_torch_says_so(tmp_path):
    done = start_example("from_torch.py", home=tmp_path, before=without("torch"))
    assert done.returncode == 1 and done.stderr == "PyTorch is not installed: pip install torch\n"


def without_compilers(patch):
    patch.setattr(importlib.util, "find_spec", lambda name: None if name == "ziglang" else find_spec(name))
    patch.setattr(shutil, "which", lambda *args: None)


def test_digits_in_the_browser_needs_a_compiler(tmp_path):
    done = start_example("digits_in_the_browser/build.py", "--digits", home=tmp_path, before=without_compilers)
    assert done.returncode == 1
    assert done.stderr == "No compiler for WebAssembly: pip install ziglang\n"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is missing")
@pytest.mark.skipif(not HAS_FMA, reason="the bits of predict differ without fused multiply-add")
def test_digits_in_the_browser(tmp_path):
    """The page has the hash of predict, and so does the module in it."""
    output = run("digits_in_the_browser/build.py", "--digits", "--epochs", "2", home=tmp_path)
    promised = re.search(r"hash of the scores of \d+ images (\w{16})", output)[1]
    page = tmp_path / "build" / "digits.html"
    assert page.read_text(encoding="utf-8").count(promised) >= 2  # in words, and for the script
    if shutil.which("node"):
        command = ["node", ROOT / "tests" / "hash_of_page.mjs", page]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == promised


@pytest.mark.parametrize("arguments", [("ppo.py", "--iterations", "3"), ("dqn.py", "--steps", "60")])
def test_reinforcement_learning(arguments, tmp_path):
    """The hash depends on NumPy's sine and the processor: it is compared, not known."""
    assert 15 < float(run("cartpole.py", home=tmp_path).split()[2]) < 30
    one, two = (run(*arguments, "--threads", n, home=tmp_path).splitlines() for n in "12")
    assert one[-1] == two[-1] and re.fullmatch(r"SHA-256 of the weights: [0-9a-f]{64}", one[-1])
    assert one[-3] == two[-3] and re.fullmatch(r"Mean length of 100 episodes after \d+ \w+: [\d.]{3,}", one[-3])
