"""Checks a built site: links and anchors have a target, no page loads anything from elsewhere, pictures have a text.

python build_tools/check_site.py build/docs
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = ("src", "srcset", "poster", "data")  # attributes, of any tag; and href of these relations of <link>
LOADING_LINKS = {"stylesheet", "icon", "shortcut icon", "preload", "modulepreload", "manifest"}
ELSEWHERE = re.compile(r"""(?:url\(|@import)\s*['"]?\s*((?:https?:)?//[^'")\s]+)""")  # in a style


class Page(HTMLParser):
    """Collects what a page links to, what it loads, its anchors, and its pictures without a text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.loaded, self.anchors, self.silent = [], [], set(), []
        text = path.read_text(encoding="utf-8")
        self.styled = ELSEWHERE.findall(text)
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Records a tag."""
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[key] for key in ("id", *["name"] * (tag == "a")) if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") in LOADING_LINKS:
            self.loaded.append(values["href"])
        for name in LOADING:
            entries = values.get(name, "").split(",") if name == "srcset" else [values.get(name, "")]
            self.loaded += [entry.split()[0] for entry in entries if entry.strip()]
        if tag == "img" and "alt" not in values:
            self.silent.append(values.get("src", ""))


def problems(site: Path) -> list[str]:
    """Returns a line for each problem."""
    paths = [path.resolve() for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path) for path in paths}
    found = [] if pages else [f"{site}: no pages"]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name}: {text}" for text in page_problems(path, page, pages)]
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: loads {link}" for link in ELSEWHERE.findall(path.read_text("utf-8"))]
    links = sum(len(page.links) for page in pages.values())
    print(f"{site}: {len(pages)} pages, {links:,} links, {len(found)} problems")
    return found


def page_problems(path: Path, page: Page, pages: dict[Path, Page]) -> list[str]:
    """Returns what is wrong with a page."""
    found = [f"no alt text for {picture}" for picture in page.silent] + [f"loads {link}" for link in page.styled]
    for link in dict.fromkeys([*page.links, *page.loaded]):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            found += [f"loads {link}"] if link in page.loaded and parts.scheme != "data" else []
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file():
            found.append(f"no file for the link {link}")
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            found.append(f"no anchor for the link {link}")
    return found


if __name__ == "__main__":
    if found := problems(Path(sys.argv[1])):
        sys.exit("\n".join(found))
