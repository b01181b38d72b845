"""The gallery of examples: a page of each program by sphinx-gallery, and an index of cards in groups.

sphinx-gallery reads a copy of the programs, and runs the quick ones there: nothing is written beside the source.
The groups and their order are those of examples/README.md.
"""

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx_gallery.scrapers import figure_rst

from minidl.utils import hints

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "examples"
RUN = {  # the programs that are run, with their arguments: quick, without times in their output
    "custom_layer": [],
    "max_pool_batch": ["--plot", "routing.png"],
    "mislabelled": ["--data", "digits", "--picture", "suspects.png"],
    "models": [],
    "seeing": [],
    "sklearn_partial_fit": [],
    "sklearn_pipeline": [],
}
CARDS = {  # the number and the name of the picture on a card
    "max_pool_batch": (1, "routing"),
    "mislabelled": (1, "suspects"),
    "seeing": (1, "history"),
}
PICTURES = {  # what each picture shows, for readers who do not see it
    "routing": "Digits at a max-pool of overlapping windows: winners, the gradient of the output, where it goes",
    "suspects": "Twenty digits, each with its label and the predicted one; the flipped labels are red",
    "history": "Curves of loss and accuracy, for training and validation, and of the learning rate",
    "filters": "Eight filters of 5x5 weights, blue below zero and red above",
    "feature_maps": "Three digits and their eight channels after the ReLU",
    "misclassified": "The misclassified digits with the predicted and the true class",
    "confusion_matrix": "Confusion matrix of ten digits",
    "saliency": "Six digits, and beside each the absolute gradient of the score of its class at each pixel",
    "grad_cam": "Six digits, and over each the class activation map of its class",
    "pool_routing": "Digits at a max-pool: the winner of each window, the gradient of the output, and where it goes",
}
INDEX = """\
Examples
========

Complete programs of the folder `examples`. Some pages show the output and the pictures of a run. The other programs
take longer, or need a data set, PyTorch, MPI or a cluster.
"""
GROUP = re.compile(r"^## (.+)\n\n(.+)\n\n((?:- .+\n)+)", re.M)
NOTE = re.compile(
    r"^\.\. only:: html\n\n    \.\. note::\n        :class: sphx-glr-download-link-note\n(?:\n|        .*\n)*", re.M
)
ZIP = re.compile(r"^    \.\. container:: sphx-glr-download sphx-glr-download-zip\n\n.*\n", re.M)


def read_groups() -> list[tuple[str, str, list[str]]]:
    """Returns title, summary and programs of each group in examples/README.md."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    return [(title, summary, re.findall(r"\((\w+)\.py\)", rows)) for title, summary, rows in GROUP.findall(text)]


def read_title(name: str) -> tuple[str, str]:
    """Returns title and first paragraph of a program's docstring."""
    docstring = ast.get_docstring(ast.parse((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")))
    head, lead, *_ = (docstring or "").split("\n\n")
    return head.partition("\n")[0], lead.replace("\n", " ")


def card(name: str) -> str:
    """Returns the card of a program."""
    title, lead = read_title(name)
    lines = [f".. grid-item-card:: {title}", f"   :link: {name}", "   :link-type: doc"]
    if name in CARDS:
        number, picture = CARDS[name]
        lines += [f"   :img-top: images/sphx_glr_{name}_{number:03}.png", f"   :img-alt: {PICTURES[picture]}"]
    return "\n".join([*lines, "", f"   {lead}", ""])


def prepare(app: Sphinx) -> None:
    """Copies the programs, and writes the index beside the copies."""
    hints.hint = lambda *args: ""  # sphinx-gallery asks for missing names, and expects an AttributeError without a hint
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, COPY)
    assert {*RUN, *CARDS} <= {path.stem for path in COPY.glob("*.py")}
    parts = [INDEX]
    for title, summary, names in read_groups():
        cards = "\n".join(card(name) for name in names)
        pages = "\n".join(names)
        parts += [
            f"{title}\n{'-' * len(title)}\n\n{summary}\n",
            ".. grid:: 1 1 2 2\n   :gutter: 3\n   :class-container: gallery\n\n" + indent(cards),
            f".. toctree::\n   :hidden:\n   :caption: {title}\n\n" + indent(pages) + "\n",
        ]
    (COPY / "index.rst").write_text("\n".join(parts), encoding="utf-8")


def indent(text: str) -> str:
    """Returns the lines as content of a directive."""
    return re.sub(r"^(?=.)", "   ", text, flags=re.M)


def choose_arguments(gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
    """Returns the arguments of a program (sphinx-gallery's reset_argv)."""
    return RUN[Path(script_vars["src_file"]).stem]


def show_pictures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Moves the pictures that a program has written to its page (an image scraper of sphinx-gallery)."""
    shown = []
    for path in sorted(COPY.rglob("*.png")):
        target = next(block_vars["image_path_iterator"])
        shutil.move(path, target)
        shown.append(figure_rst([target], gallery_conf["src_dir"], PICTURES[path.stem]))
        if path.parent != COPY:
            path.parent.rmdir()  # else it would be a folder of examples
    return "\n".join(shown)


def mark_classes(app: Sphinx) -> None:
    """Marks names with a capital as classes, in programs that were not run too: their links are then underlined."""
    for path in Path(app.srcdir, "examples").glob("*.codeobj.json"):
        names = json.loads(path.read_text(encoding="utf-8"))
        for name, targets in names.items():
            for target in targets:
                target["is_class"] |= name[0].isupper() and name.isidentifier()
        path.write_text(json.dumps(names, indent=1, sort_keys=True), encoding="utf-8")


def tidy(app: Sphinx, docname: str, source: list[str]) -> None:
    """Removes a note and the zip file, which has the time of the build; links pages and programs in the prose."""
    if not docname.startswith("examples/") or docname == "examples/index":
        return
    text = ZIP.sub("", NOTE.sub("", source[0]))
    prose = re.compile(r"^(?! ).*$", re.M)  # code is indented
    text = prose.sub(lambda line: re.sub(r"`docs/([\w/-]+)\.md`", r":doc:`/\1`", line[0]), text)
    source[0] = prose.sub(lambda line: re.sub(r"(?<!`)`(\w+)\.py`", r":doc:`\1.py <\1>`", line[0]), text)
