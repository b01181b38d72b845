"""Opens pages of the built site in Chromium: widths, themes, accessibility, requests. `make docs-browser` runs it.

Every page must fit its window, cut off no code, log no error, request only files of the site, and have no violation
that axe-core (https://github.com/dequelabs/axe-core) finds. Screenshots are written next to the site, to be looked at.
"""

import argparse
import base64
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from browser import CHROMIUM, Browser

PAGES = [
    "index",
    "tutorials/first-network",
    "tutorials/mnist",
    "how-to/index",
    "how-to/tune-speed",
    "reference/layers",
    "reference/errors",
    "reference/glossary",
    "reference/api/generated/minidl.Trainer",
    "reference/api/generated/minidl.layers.Conv2D",
    "explanation/max-pooling",
    "explanation/inside",
    "examples/index",
    "examples/seeing",
    "coming-from/pytorch",
    "benchmarks/index",
    "search",
]
WIDTHS, HEIGHT = (375, 768, 1280), 900
THEMES = ("light", "dark")
SET_THEME = "localStorage.setItem('mode', {0!r}); localStorage.setItem('theme', {0!r}); 0"
TOO_WIDE = """[document.scrollingElement, ...document.querySelectorAll("main, article, article dl, article section")]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.tagName + "." + e.className)"""
# Blocks of code with an end that is not seen without scrolling; tables of text may have one in narrow windows.
CUT_OFF = """[...document.querySelectorAll(".highlight pre")]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && (window.innerWidth >= 1280 || !e.closest(".wide-table")))
    .map(e => e.textContent.split("\\n").sort((a, b) => b.length - a.length)[0])"""
VIOLATIONS = """axe.run().then(results => results.violations.map(
    rule => rule.id + ": " + rule.nodes.map(node => node.target).slice(0, 3).join(", ")))"""


def findings(browser: Browser, site: Path, page: str, width: int, theme: str, axe: str) -> list[str]:
    """Opens a page, and returns what is wrong with it."""
    metrics = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < WIDTHS[1]}
    browser.send("Emulation.setDeviceMetricsOverride", **metrics)
    path = site / f"{page}.html"
    if not path.exists():
        return ["is missing"]
    browser.open(address := path.as_uri())
    if browser.evaluate("document.documentElement.dataset.theme") != theme:
        browser.evaluate(SET_THEME.format(theme))
        browser.open(address)
    assert browser.evaluate("document.documentElement.dataset.theme") == theme
    found = []
    if wide := browser.evaluate(TOO_WIDE):
        found.append(f"is too narrow for {', '.join(wide)}")
    found += [f"cuts off {line}" for line in browser.evaluate(CUT_OFF)]
    requests = {event["request"]["url"] for event in browser.params_of("Network.requestWillBeSent")}
    found += [f"requests {url}" for url in requests if not url.startswith((site.as_uri(), "data:"))]
    found += [f"logs {event['entry']['text']}" for event in browser.params_of("Log.entryAdded")]
    found += [f"throws {event['exceptionDetails']['text']}" for event in browser.params_of("Runtime.exceptionThrown")]
    browser.evaluate(axe)
    return found + browser.evaluate(VIOLATIONS)


def main() -> int:
    """Prints the findings, and writes screenshots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--axe", type=Path, required=True, help="axe.min.js of axe-core")
    parser.add_argument("--pages", nargs="+", default=PAGES)
    args = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("chromium is missing")
    site, axe, count = args.site.resolve(), args.axe.read_text(encoding="utf-8"), 0
    pictures = site.parent / "screenshots"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir()
    with tempfile.TemporaryDirectory() as profile, Browser(profile) as browser:
        for page in args.pages:
            for theme in THEMES:
                for width in WIDTHS:
                    name = f"{page.replace('/', '.')}-{width}-{theme}"
                    found = findings(browser, site, page, width, theme, axe)
                    count += len(found)
                    print("".join(f"{name}: {line}\n" for line in found), end="")
                    picture = browser.send("Page.captureScreenshot", format="png")["data"]
                    (pictures / f"{name}.png").write_bytes(base64.b64decode(picture))
    version = json.loads((args.axe.parent / "package.json").read_text(encoding="utf-8"))["version"]
    looked = f"{len(args.pages)} pages, {len(WIDTHS)} widths, {len(THEMES)} themes"
    print(f"{looked}: {count} findings; axe-core {version}")
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
