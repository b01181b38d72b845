"""Settings of Sphinx for the site: `make docs`."""

import inspect
import os
import re
import sys
import tomllib
from html import escape, unescape
from pathlib import Path
from typing import Any

from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent))
import gallery

from minidl import Sequential, Trainer, __version__

SUMMARY = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]["description"]
project = "minidl"
author = copyright = "The minidl developers"
version = release = __version__

extensions = [
    "myst_parser",  # pages in Markdown, readable without a build
    "numpydoc",  # docstrings with the sections of NumPy
    "sphinx.ext.autosummary",  # a page for each public name
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",  # cards of the start page
    "sphinx_gallery.gen_gallery",  # a page for each program of examples/
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
default_role = "code"  # `x` in a docstring is code, as in Markdown
nitpicky = True
smartquotes = False  # "float32" is code

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # docstrings describe types in words
autodoc_preserve_defaults = True
numpydoc_show_class_members = False  # the templates do
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../build/examples",  # a copy: see gallery.py
    "gallery_dirs": "examples",
    "copyfile_regex": r"index\.rst",
    "filename_pattern": rf"/({'|'.join(gallery.RUN)})\.py$",
    "reset_argv": "gallery.choose_arguments",
    "image_scrapers": ["gallery.show_pictures"],
    "reset_modules": (),
    "capture_repr": (),
    "css": ["sg_gallery"],
    "notebook_extensions": set(),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # the same pages from the same sources
    "min_reported_time": 1e9,
}

html_theme = "pydata_sphinx_theme"
html_title = "minidl"
html_static_path = ["_static"]
html_js_files = ["site.js"]
html_css_files = ["site.css", "gallery.css"]
html_copy_source = html_show_sourcelink = False
html_last_updated_fmt = None  # the same pages from the same sources
html_theme_options = {
    "navbar_start": ["navbar-logo"],
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "explanation/twin": []},  # whose code needs the width
    "show_prev_next": True,
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "collapse_navigation": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_exclude = ".linenos, .gp, .go"

# Where this build will be, beside other versions (build_tools/site_versions.py): https://example.org/minidl/0.2/
address = os.environ.get("MINIDL_DOCS_URL")
if address:
    folder = address.rstrip("/").rpartition("/")[2]
    html_baseurl = address if folder == "dev" else address.removesuffix(f"{folder}/") + "stable/"
    html_theme_options |= {
        "switcher": {"json_url": "../switcher.json", "version_match": folder},
        "check_switcher": False,  # the file is beside this build, not in it
        "navbar_start": ["navbar-logo", "version-switcher"],
        "show_version_warning_banner": True,
    }


INTERNAL = {  # called by other modules of minidl, not by its users
    *(f"BaseTrainer.{name}" for name in ("at", "batches", "evaluate_rows", "keeps_scores", "nothing_seen")),
    *(f"BaseTrainer.check_{name}" for name in ("between_steps", "targets", "trainable")),
    *(f"BaseTrainer.{name}" for name in ("network", "outputs", "run", "sample_key", "scores_of", "stepping", "steps")),
    *("Trainer.check_savable", "Trainer.fit_origin", "Trainer.fit_outcome", "Trainer.measures"),
    *(f"Sequential.{name}" for name in ("as_layer", "build_from", "check_one_size", "discard", "unbuilt_on_error")),
}
CLASSES = {kind.__name__: kind for kind in (*Trainer.__mro__, Sequential)}
assert all(hasattr(CLASSES[kind], method) for kind, method in (name.split(".") for name in INTERNAL))


def skip_member(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skips what other libraries define, what is internal, and attributes without a docstring."""
    function = inspect.unwrap(member.fget if isinstance(member, property) else getattr(member, "__func__", member))
    if not callable(function) or name[0] == "_" or not function.__doc__:
        return True
    defined = getattr(function, "__module__", None) or ""
    return True if not defined.startswith("minidl") or function.__qualname__ in INTERNAL else None


def link_pages(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Links the pages that a docstring names by their files."""
    lines[:] = [re.sub(r"\bdocs/([\w/-]+)\.md", r":doc:`/\1`", line) for line in lines]


def describe(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Adds title, description and picture of the page for links to it (https://ogp.me)."""
    title = unescape(re.sub("<[^>]+>", "", context.get("title", "")))
    shown = {"title": title, "description": SUMMARY, "image": f"{address}_static/card.png"}
    tags = {f"og:{name}": text for name, text in shown.items()} | {"og:type": "website", "og:site_name": "minidl"}
    lines = [f'<meta property="{name}" content="{escape(text)}">' for name, text in tags.items()]
    lines += ['<meta name="twitter:card" content="summary_large_image">']
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def forget_compiled(app: Any, env: Any) -> None:
    """Removes compiled modules, which have no page, from the list of pages of source code."""
    env._viewcode_modules = {name: entry for name, entry in env._viewcode_modules.items() if entry}


def mark_tables(app: Any, doctree: Any) -> None:
    """Marks the blocks of text that are wide tables: see site.css."""
    for block in doctree.findall(nodes.literal_block):
        lines = block.astext().splitlines()
        columns = [line for line in lines if len(re.findall(r"\S {2,}(?=\S)", line)) > 1]
        if block.get("language") == "text" and len(columns) > 2 and len(max(lines, key=len)) > 80:
            block["classes"].append("wide-table")


def setup(app: Any) -> None:
    """Connects the functions above."""
    app.connect("builder-inited", gallery.prepare, priority=1)  # before sphinx-gallery reads the copies
    app.connect("builder-inited", gallery.mark_classes, priority=999)  # after it
    app.connect("source-read", gallery.tidy)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", link_pages)
    app.connect("doctree-read", mark_tables)
    app.connect("env-updated", forget_compiled)
    if address:
        app.connect("html-page-context", describe)
