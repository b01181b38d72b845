"""Settings of Sphinx for the site: `make docs`."""

import inspect
from typing import Any

from minidl import __version__

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
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
default_role = "code"  # `x` in a docstring is code, as in Markdown
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # docstrings describe types in words
autodoc_preserve_defaults = True
numpydoc_show_class_members = False  # the templates do
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "minidl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_last_updated_fmt = None  # the same pages from the same sources
html_theme_options = {
    "navbar_start": ["navbar-logo"],
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_exclude = ".linenos, .gp, .go"


def skip_member(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skips what other libraries define, and attributes without a docstring."""
    if isinstance(member, property):
        return member.fget.__doc__ is None
    if not callable(member):
        return True
    defined = getattr(inspect.unwrap(member), "__module__", None) or ""
    return True if not defined.startswith("minidl") or not member.__doc__ else None


def forget_compiled(app: Any, env: Any) -> None:
    """Removes compiled modules, which have no page, from the list of pages of source code."""
    env._viewcode_modules = {name: entry for name, entry in env._viewcode_modules.items() if entry}


def setup(app: Any) -> None:
    """Connects the functions above."""
    app.connect("autodoc-skip-member", skip_member)
    app.connect("env-updated", forget_compiled)
