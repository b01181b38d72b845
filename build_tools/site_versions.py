"""Puts a built site into the folder of its version on a site of all versions.

python build_tools/site_versions.py build/docs pages 0.2 --base /minidl/

Releases have a folder per minor version (0.2 also for 0.2.1), the branch main has `dev`, and `stable` is a copy of the
newest release. `switcher.json` lists them for the menu of pydata-sphinx-theme. The first page leads to `stable`.
"""

import argparse
import json
import re
import shutil
from pathlib import Path

FIRST_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>minidl</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<link rel="canonical" href="{0}/index.html">
<p><a href="{0}/index.html">The manual of minidl</a></p>
</html>
"""


def add(built: Path, pages: Path, version: str, base: str) -> None:
    """Adds the site of a version, or replaces it; base is the path of `pages` on its server."""
    if version != "dev" and not re.fullmatch(r"\d+\.\d+", version):
        raise ValueError(f"version: expected dev or two numbers such as 0.2, got {version!r}")
    replace(built, pages / version)
    releases = [path.name for path in pages.iterdir() if re.fullmatch(r"\d+\.\d+", path.name)]
    releases.sort(key=lambda name: [int(number) for number in name.split(".")], reverse=True)
    if releases:
        replace(pages / releases[0], pages / "stable")
    (pages / "switcher.json").write_text(json.dumps(entries(releases, pages, base), indent=1) + "\n")
    (pages / "index.html").write_text(FIRST_PAGE.format("stable" if releases else "dev"))
    (pages / ".nojekyll").touch()  # GitHub Pages would leave out folders such as _static


def entries(releases: list[str], pages: Path, base: str) -> list[dict[str, object]]:
    """Returns the content of the menu."""
    found: list[dict[str, object]] = [{"version": name, "url": f"{base}{name}/"} for name in releases]
    if found:
        found[0] |= {"name": f"{releases[0]} (stable)", "url": f"{base}stable/", "preferred": True}
    return found + [{"version": "dev", "url": f"{base}dev/"}] * (pages / "dev").is_dir()


def replace(source: Path, target: Path) -> None:
    """Copies a folder in place of another one."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("built", type=Path, help="the site that `make docs` has built")
    parser.add_argument("pages", type=Path, help="the site of all versions, which is changed")
    parser.add_argument("version", help="dev, or a release without its last number")
    parser.add_argument("--base", default="/", help="the path of the site of all versions on its server")
    args = parser.parse_args()
    add(args.built, args.pages, args.version, args.base)
