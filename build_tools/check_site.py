"""Checks a built site: links and anchors have a target, no page loads anything from elsewhere, pictures have a text.

python build_tools/check_site.py build/docs
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
UNLOADED = ("search", "canonical", "next", "prev")  # relations of <link> that load nothing


class Page(HTMLParser):
    """Collects what a page links to, what it loads, its anchors, and its pictures without a text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.loaded, self.anchors, self.silent = [], [], set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Records a tag."""
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if values.get(LOADED.get(tag, "")) and values.get("rel") not in UNLOADED:
            self.loaded.append(values[LOADED[tag]])
        if tag == "img" and not values.get("alt"):
            self.silent.append(values.get("src") or "")


def problems(site: Path) -> list[str]:
    """Returns a line for each problem."""
    paths = [path.resolve() for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path) for path in paths}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                found += [f"{name}: loads {link}"] if link in page.loaded and parts.scheme != "data" else []
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name}: no file for the link {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: no anchor for the link {link}")
        found += [f"{name}: no alt text for {picture}" for picture in page.silent]
    links = sum(len(page.links) for page in pages.values())
    print(f"{site}: {len(pages)} pages, {links:,} links, {len(found)} problems")
    return found


if __name__ == "__main__":
    if found := problems(Path(sys.argv[1])):
        sys.exit("\n".join(found))
