"""Checks docs/explanation/how-a-batch-is-backpropagated.md and the example it quotes: it finds a false claim."""

import copy
import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scripts import run_script

from minidl import Sequential
from minidl.layers import AvgPool2D
from minidl.optimizers import RMSprop

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "explanation"
PAGE = (PAGES / "how-a-batch-is-backpropagated.md").read_text(encoding="utf-8")
IN_THE_CODE = (PAGES / "backpropagation-in-the-code.md").read_text(encoding="utf-8")
CODE, TEXT = (re.compile(rf"^```{language}\n(.*?)^```$", re.M | re.S) for language in ("python", "text"))
PRINTED = re.compile(r"^print\(.*\) +# (.*)$", re.M)
ROUNDING = re.compile(r"\d(?:\.\d)?e-(\d\d)")
# a file, and a statement about it
POINTER = re.compile(r"`(minidl(?:_c)?/[\w/]+\.\w+)`(.*?)(?=`minidl|\n- |\n\n)", re.S)


# ---- the page


def test_the_images_by_hand(capsys):
    program = "".join(CODE.findall(PAGE))
    exec(program, {})
    assert capsys.readouterr().out.splitlines() == PRINTED.findall(program)


def test_quotes_are_what_the_example_prints(tmp_path):
    """Word for word. Rounding errors depend on the processor: their power of ten may be off by one."""
    printed = run_script(ROOT / "examples" / "max_pool_batch.py", folder=tmp_path).stdout
    quoted = "\n".join(TEXT.findall(PAGE))
    assert ROUNDING.sub("rounding", quoted) == ROUNDING.sub("rounding", printed)
    powers = [np.array([int(power) for power in ROUNDING.findall(text)]) for text in (quoted, printed)]
    assert len(powers[0]) >= 5 and np.abs(powers[0] - powers[1]).max() <= 1


def test_named_functions_exist():
    result = [
        (path, name) for path, statement in POINTER.findall(IN_THE_CODE) for name in re.findall(r"`(\w+)`", statement)
    ]
    assert len(result) >= 25
    for path, name in result:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"(?:void|int|REAL|ptrdiff_t|def) (?:FN\()?{name}\)?\(", source), f"{path}: {name}"


def test_named_pictures_and_files_exist():
    named = re.findall(r"\]\(([\w/.]+)\)", PAGE)
    assert named
    for path in [PAGES / name for name in named] + [ROOT / name for name in re.findall(r"`(tests/\S+)`", PAGE)]:
        assert path.exists(), path


def test_kernels_have_a_page_of_their_own():
    """The page teaches without digressions; its skeleton is the list of four."""
    assert not POINTER.findall(PAGE) and POINTER.findall(IN_THE_CODE)
    assert re.findall(r"^(\d)\. \*\*", PAGE, re.M) == re.findall(r"^## (\d)\. ", PAGE, re.M) == list("1234")
    assert re.findall(r"^### \((\w)\)", PAGE, re.M) == list("abcdefghi")


def test_the_table_of_steps_has_the_examples_weights():
    rows = re.findall(r"^\| (\w+)[^|]*\|.*\| 1, 1.1, ([\d.]+) \|$", PAGE, re.M)
    assert rows == [(name, w) for name, w in re.findall(r"- (\w+).*: w = 1.0000 -> 1.1000 -> ([\d.]+)", PAGE)]
    assert len(rows) == 5


# ---- the example, and for each of its claims a change that makes it false


@pytest.fixture(scope="module")
def prepared():
    """The example as a module, and its batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples")
        example = importlib.import_module("max_pool_batch")
        yield example, example.prepare()
    del sys.modules["max_pool_batch"], sys.modules["batch_and_step"]


def first_example_wins_for_all(example, b, monkeypatch):
    """No example has a winner of its own."""
    b.maps = np.repeat(b.maps[:1], example.N, axis=0)


def gradient_goes_to_all_pixels(example, b, monkeypatch):
    b.pool = Sequential([AvgPool2D(2)], input_shape=b.maps.shape[1:], dtype="float64")


def gradients_go_to_other_examples(example, b, monkeypatch):
    result = {name: np.roll(g, 1, axis=0) for name, g in b.trainer.per_example_gradients(b.X, b.y).items()}
    monkeypatch.setattr(b.trainer, "per_example_gradients", lambda X, y: result, raising=False)


def all_errors_are_equal(example, b, monkeypatch):
    """The mean error is then enough for a linear layer."""
    b.dscores = np.repeat(b.dscores[:1], example.N, axis=0)


def winners_are_merged_over_examples(example, b, monkeypatch):
    won = np.eye(4)[example.split_windows(b.maps).argmax(axis=-1)].any(axis=0)
    b.slopes = example.convolution_gradient(b, won / won.sum(axis=-1, keepdims=True))


def partial_sums_are_added_in_turn(example, b, monkeypatch):
    def summed(b, size):
        parts = [slice(i, i + size) for i in range(0, example.N, size)]
        return sum(example.flatten(example.backpropagate(b.model, b.X[part], b.dscores[part])[1]) for part in parts)

    monkeypatch.setattr(example, "sum_in_parts", summed)


def ties_all_get_the_gradient(example, b, monkeypatch):
    cells = example.split_windows(b.maps)
    b.slopes = example.convolution_gradient(b, cells == cells.max(axis=-1, keepdims=True))


def step_is_too_long(example, b, monkeypatch):
    step = example.batch_and_step
    monkeypatch.setitem(step.OPTIMIZERS, "RMSprop", (step.rmsprop, RMSprop(0.011)))


def digits_are_not_shuffled(example, b, monkeypatch):
    """A batch then holds few different digits, and its mean stays noisy."""
    order = np.argsort(b.many[1], kind="stable")
    b.batches = lambda n: order.reshape(-1, n)


FALSE_CLAIMS = {
    "forward_keeps_every_example": first_example_wins_for_all,
    "backward_goes_to_the_winner": gradient_goes_to_all_pixels,
    "gradients_are_summed_at_the_end": gradients_go_to_other_examples,
    "the_mean_error_is_not_enough": all_errors_are_equal,
    "no_share_for_the_winners_of_others": winners_are_merged_over_examples,
    "a_batch_may_come_in_parts": partial_sums_are_added_in_turn,
    "ties_and_overlaps": ties_all_get_the_gradient,
    "the_step_takes_the_mean": step_is_too_long,
    "a_batch_is_a_better_guess": digits_are_not_shuffled,
}


@pytest.mark.parametrize("name", FALSE_CLAIMS)
def test_a_false_claim_is_found(prepared, name, monkeypatch):
    example, b = prepared[0], copy.copy(prepared[1])
    claim = getattr(example, name, None) or getattr(example.batch_and_step, name)
    claim(b)
    FALSE_CLAIMS[name](example, b, monkeypatch)
    with pytest.raises(AssertionError):
        claim(b)


def test_a_false_claim_is_not_printed(prepared, capsys):
    example, _ = prepared
    with pytest.raises(AssertionError, match="two is three"):
        example.check(2 == 3, "two is three")
    assert capsys.readouterr().out == ""
