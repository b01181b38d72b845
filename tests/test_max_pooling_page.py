"""Checks docs/explanation/max-pooling.md: its arithmetic, its text without JavaScript, its use by keyboard alone."""

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser

from minidl import Sequential
from minidl.initializers import ones
from minidl.layers import Conv2D, MaxPool2D
from minidl_c.functional import maxpool2d_backward, maxpool2d_forward

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "docs" / "_static"
PAGE = (ROOT / "docs" / "explanation" / "max-pooling.md").read_text(encoding="utf-8")
HTML = re.search(r"^:::\{raw\} html\n(.*?)^:::$", PAGE, re.M | re.S)[1]

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is missing")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing")


@functools.cache
def make_model(height, width, size, stride, padding):
    layers = [Conv2D(1, 1, use_bias=False, kernel_initializer=ones), MaxPool2D(size, stride, padding)]
    return Sequential(layers, input_shape=(1, height, width), dtype="float64")


def backpropagate(images, dys, pool):
    """Returns y, dx and the sum of dw of a batch (n, h, w) as minidl computes them, with a 1x1 convolution for w."""
    model = make_model(*images.shape[1:], **pool)
    y = model.forward(images[:, np.newaxis], training=True)
    dx = model.backward(dys[:, np.newaxis])
    return y[:, 0], dx[:, 0], model.params["0.weight"].grad.item()


def pool_alone(images, dys, pool):
    """Returns y and dx. Images may have NaN and infinities, which a model refuses."""
    x, y, dx = images[:, np.newaxis], np.empty_like(dys[:, np.newaxis]), np.empty_like(images[:, np.newaxis])
    window = [(pool[name], pool[name]) for name in ("size", "stride", "padding")]
    maxpool2d_forward(x, y, *window)
    maxpool2d_backward(dys[:, np.newaxis], x, dx, *window)
    return y[:, 0], dx[:, 0]


def find_winners(image, outputs, pool):
    """Returns row and column of each window's winner (oh, ow, 2): where minidl puts the gradient of that window."""
    windows = np.eye(outputs[0] * outputs[1]).reshape(-1, *outputs)
    _, dx = pool_alone(np.stack([image] * len(windows)), windows, pool)
    flat = dx.reshape(len(windows), -1)
    assert (flat.sum(axis=1) == 1).all() and (flat.max(axis=1) == 1).all()
    return np.stack(np.unravel_index(flat.argmax(axis=1), image.shape), axis=-1).reshape(*outputs, 2)


# ---- the arithmetic


def random_case(rng, kind):
    """Returns images (n, h, w), dy and a pool. "ties": small integers; "special": floats, NaN and infinities."""
    size = int(rng.integers(1, 5))
    pool = {"size": size, "stride": int(rng.integers(1, 5)), "padding": int(rng.integers(0, size // 2 + 1))}
    shape = (rng.integers(1, 4), *rng.integers(max(size - 2 * pool["padding"], 1), 9, 2))
    images = rng.integers(-2, 3, shape).astype(float) if kind == "ties" else rng.normal(size=shape)
    if kind == "special":
        images = np.where(rng.random(shape) < 0.5, rng.choice([np.nan, -np.inf, np.inf], shape), images)
    outputs = tuple((n + 2 * pool["padding"] - size) // pool["stride"] + 1 for n in images.shape[1:])
    dys = rng.integers(-3, 4, (len(images), *outputs)) / (1 if kind == "ties" else 7)
    return images, dys, pool


def as_json(array):
    """Returns nested lists, with a string for what JSON has no number for."""
    return json.loads(re.sub(r"-?(NaN|Infinity)", r'"\g<0>"', json.dumps(array.tolist())))


def assert_equal(found, expected):
    np.testing.assert_array_equal(np.array(found, dtype=float), expected)


@needs_node
def test_numbers_are_those_of_minidl():
    rng = np.random.default_rng(0)
    cases = [random_case(rng, ("ties", "floats", "ties", "special")[k % 4]) for k in range(1000)]
    command = ["node", ROOT / "tests" / "max_pool_cases.mjs", STATIC / "max_pool.js"]
    request = [{"images": as_json(images), "dys": dys.tolist(), "pool": pool} for images, dys, pool in cases]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True, timeout=60)
    results = json.loads(done.stdout)
    assert len(results) == len(cases)
    for (images, dys, pool), result in zip(cases, results, strict=True):
        y, dx = pool_alone(images, dys, pool)
        for i, example in enumerate(result["examples"]):
            assert_equal(example["winners"], find_winners(images[i], y.shape[1:], pool))
            assert_equal(example["y"], y[i])
            assert_equal(example["dx"], dx[i])
        if np.isfinite(images).all():
            assert_weights_are_minidls(images, dys, pool, result)


def assert_weights_are_minidls(images, dys, pool, result):
    """Compares dw of each example, the sum and the mean, and all that averaging first gives."""
    each = [backpropagate(images[i : i + 1], dys[i : i + 1], pool)[2] for i in range(len(images))]
    dw = backpropagate(images, dys, pool)[2]
    first_y, first_dx, first_dw = backpropagate(images.mean(axis=0)[np.newaxis], dys.mean(axis=0)[np.newaxis], pool)
    found = [*(example["dw"] for example in result["examples"]), result["sum"], result["dw"], result["first"]["dw"]]
    np.testing.assert_allclose(found, [*each, dw, dw / len(images), first_dw], rtol=1e-12, atol=1e-12)
    assert_equal(result["first"]["y"], first_y[0])
    assert_equal(result["first"]["dx"], first_dx[0])


# ---- the text without JavaScript


def static_numbers():
    """Returns the rows of the table for readers without JavaScript, by name, with an array for each column."""
    table = re.search(r"<noscript>(.*)</noscript>", HTML, re.S)[1]
    rows = re.findall(r'<th scope="row">(\w+)</th>(.*?)</tr>', table, re.S)
    cells = {name: re.findall("<td>(.*?)</td>", row, re.S) for name, row in rows}
    return {name: [parse(re.sub("</?b>", "", cell).split("<br>")) for cell in cells[name]] for name in cells}, table


def parse(lines):
    return np.array([[float(word.replace("−", "-")) for word in line.split()] for line in lines])


def test_static_numbers_are_those_of_minidl():
    numbers, table = static_numbers()
    x, dy = (np.stack(numbers[name][:2]) for name in ("x", "dy"))
    pool = {"size": 2, "stride": 2, "padding": 0}
    y, dx, dw = backpropagate(x, dy, pool)
    wrong_y, wrong_dx, wrong_dw = backpropagate(x.mean(axis=0)[np.newaxis], dy.mean(axis=0)[np.newaxis], pool)
    assert_equal(numbers["x"][2], x.mean(axis=0))
    assert_equal(numbers["y"], [*y, *wrong_y])
    assert_equal(numbers["dy"][2], dy.mean(axis=0))
    assert_equal(numbers["dx"], [*dx, *wrong_dx])
    each = [backpropagate(x[i : i + 1], dy[i : i + 1], pool)[2] for i in range(2)]
    assert [cell.item() for cell in numbers["dw"]] == [*each, wrong_dw]
    assert f"= {dw / 2:g}, the mean".replace("-", "−") in " ".join(table.split())
    for image, cell in zip(numbers["x"], re.findall("<td>(.*?)</td>", table, re.S)[1:4], strict=True):
        bold = [word.startswith("<b>") for word in re.split(r"\s|<br>", cell)]
        winners = find_winners(image, (2, 2), pool).reshape(-1, 2)
        assert np.flatnonzero(bold).tolist() == sorted(4 * row + column for row, column in winners)


# ---- the page, by keyboard alone


@pytest.fixture
def page(tmp_path):
    """A browser with the page's widget, opened as a file."""
    shutil.copytree(STATIC, tmp_path / "_static")
    file = tmp_path / "explanation" / "max-pooling.html"
    file.parent.mkdir()
    file.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Test</title>{HTML}', encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        yield browser
        assert not browser.params_of("Runtime.exceptionThrown") + browser.params_of("Log.entryAdded")
        requested = {sent["request"]["url"] for sent in browser.params_of("Network.requestWillBeSent")}
        own = ("max_pool.css", "max_pool.js", "max_pool_view.js", "max_pool_page.js")
        assert requested == {file.as_uri(), *((tmp_path / "_static" / name).as_uri() for name in own)}


def text(page, selector):
    return page.evaluate(f"document.querySelector('{selector}').textContent")


def title(page):
    return text(page, "[data-part=title]")


def focused(page):
    return page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent")


def tab_to(page, label, key="Tab"):
    """Presses Tab until an element has the focus whose label, or text, begins with this."""
    for _ in range(30):
        page.press(key)
        if focused(page).startswith(label):
            return
    raise AssertionError(f"Tab does not reach {label!r}")


def grid(page, block, name):
    """Returns the numbers of a grid: x, y, dy or dx of the block with this id."""
    rows = f"[...document.querySelectorAll('#{block} figure.{name} [role=row]')]"
    texts = f"{rows}.map((row) => [...row.children].map((cell) => cell.textContent).join(' '))"
    return parse(page.evaluate(texts))


def last_number(line):
    return float(re.split(r"[=\s]", line)[-1].replace("−", "-"))


def assert_shows_minidls_numbers(page, pool, count=2):
    """Compares y and dx of all examples, and the comparison with averaging first, if it is shown; returns x and dx."""
    shown = {
        name: np.stack([grid(page, f"max-pool-{i + 1}", name) for i in range(count)]) for name in ("x", "y", "dy", "dx")
    }
    y, dx, dw = backpropagate(shown["x"], shown["dy"], pool)
    assert_equal(shown["y"], y)
    assert_equal(shown["dx"], dx)
    if not page.evaluate("document.querySelector('[data-part=averaging]').hidden"):
        means = [shown[name].mean(axis=0)[np.newaxis] for name in ("x", "dy")]
        wrong_y, wrong_dx, wrong_dw = backpropagate(*means, pool)
        for block, expected_y, expected_dx, expected_dw in (
            ("max-pool-right", y.mean(axis=0), dx.mean(axis=0), dw / count),
            ("max-pool-wrong", wrong_y[0], wrong_dx[0], wrong_dw),
        ):
            np.testing.assert_allclose(grid(page, block, "y"), expected_y, atol=0.005)
            np.testing.assert_allclose(grid(page, block, "dx"), expected_dx, atol=0.005)
            assert last_number(text(page, f"#{block} .dw")) == pytest.approx(expected_dw, abs=0.005)
        assert last_number(text(page, "[data-part=fact]")) == pytest.approx(dw / count, abs=0.005)
    return shown["x"], dx


@needs_chromium
def test_steps_go_forward_and_back(page):
    first_step = {"figure.x": 1, "figure.y": 1, "figure.dy": 4, "figure.dx": 5, ".dw": 6, "[data-part=averaging]": 7}
    titles = []
    tab_to(page, "Next")
    for step in range(1, 8):
        titles.append(title(page))
        assert titles[-1].startswith(f"Step {step} of 7: ")
        for selector, first in first_step.items():
            assert page.evaluate(f"document.querySelector('{selector}').checkVisibility()") == (step >= first)
        page.press("Enter")
    assert title(page) == titles[6]  # no step follows the last one
    tab_to(page, "Step 7", "Shift+Tab")
    page.press("ArrowLeft")
    assert title(page) == titles[5]
    assert focused(page) == titles[5].replace(" of 7", "")
    tab_to(page, "Previous", "Shift+Tab")
    page.press(*["Enter"] * 4)
    assert title(page) == titles[1]


@needs_chromium
def test_a_pixel_changes_by_keys(page):
    """The winner moves, and dx follows."""
    numbers, _ = static_numbers()
    pool = {"size": 2, "stride": 2, "padding": 0}
    tab_to(page, "Step 5")
    page.press("Enter")
    x, dx = assert_shows_minidls_numbers(page, pool)
    assert_equal(x, numbers["x"][:2])
    assert_equal(dx, numbers["dx"][:2])
    assert dx[0, 0, :2].tolist() == [1, 0]

    tab_to(page, "Example 1, row 1, column 1, value 8, wins window A")
    page.press("ArrowRight", "9")
    assert focused(page) == "Example 1, row 1, column 2, value 9, wins window A"
    assert assert_shows_minidls_numbers(page, pool)[1][0, 0, :2].tolist() == [0, 1]
    assert text(page, "[data-part=change]") == (
        "Example 1, row 1, column 2 is now 9. "
        "The winner of window A moves from row 1, column 1 to row 1, column 2. dx there is 1."
    )
    page.press("-")  # 8, as large as its left neighbour, which comes first
    assert focused(page) == "Example 1, row 1, column 2, value 8, equals a winner but comes later"
    assert assert_shows_minidls_numbers(page, pool)[1][0, 0, :2].tolist() == [1, 0]

    tab_to(page, "Example 1, window A, dy +1")
    page.press("+", "+", "ArrowDown", "End", "0", "-", "-")
    assert focused(page) == "Example 1, window D, dy −2, goes to row 3, column 4"
    _, dx = assert_shows_minidls_numbers(page, pool)
    assert (dx[0, 0, 0], dx[0, 2, 3]) == (3, -2)


@needs_chromium
def test_overlapping_windows_padding_and_averaging_first(page):
    tab_to(page, "Step 7")
    page.press("Enter")
    assert_shows_minidls_numbers(page, {"size": 2, "stride": 2, "padding": 0})
    for reason in (
        "Raise it in example 1 from 6 to 6.1, and the output stays 8",
        "dw is −4, but averaging first gives 2.25",
    ):
        assert reason in text(page, "[data-part=reasons]")
    page.evaluate("document.querySelector('[data-part=window]').focus()")
    page.press("ArrowDown")
    x, _ = assert_shows_minidls_numbers(page, {"size": 3, "stride": 2, "padding": 0})
    assert x.shape == (2, 5, 5)
    page.press("ArrowDown")
    _, dx = assert_shows_minidls_numbers(page, {"size": 3, "stride": 1, "padding": 0})
    assert (dx[1] != 0).sum() == 1  # one pixel wins all four windows
    page.press("Tab", "ArrowDown", "Tab", " ")
    for _ in range(3):
        assert_shows_minidls_numbers(page, {"size": 3, "stride": 1, "padding": 1}, count=3)
        page.evaluate("document.querySelector('[data-part=random]').focus()")
        page.press("Enter")
    page.press("Tab", "Enter")
    assert title(page).startswith("Step 1 of 7")
    assert_equal(grid(page, "max-pool-1", "x"), static_numbers()[0]["x"][0])
