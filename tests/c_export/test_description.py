"""What the user says of a model in its C file: the names of the classes, and metadata in the comment."""

import ctypes
import json

import pytest
from c_export.compiled import compile_c

import minidl
from minidl import Sequential, Trainer
from minidl.c_export import HAS_FMA
from minidl.layers import Conv2D, Dense, Flatten
from minidl.optimizers import SGD

pytestmark = pytest.mark.skipif(not HAS_FMA, reason="the bits of predict differ without fused multiply-add")
HOSTILE = [
    *("*/ int x;", "/* a\nb", "a??/", "\\", '"%s\\', "né\u2028\t", "b??/ " * 30, "c\\ " * 40, "??'??("),
    *("u//v", "d*/ " * 30, "/*/", "*" * 120 + "/"),
]


def names_in(source, count):
    """Returns the table of names in a compiled file, as bytes."""
    return list((ctypes.c_char_p * count).in_dll(ctypes.CDLL(str(compile_c(source, "-trigraphs"))), "net_classes"))


def test_it_cannot_end_the_comment(tmp_path):
    model = Sequential([Dense(len(HOSTILE))], input_shape=(2,))
    model.classes, model.metadata = HOSTILE, {"*/": {"/*": HOSTILE, "n": [1, None]}, "last??/": "*/*/??/"}
    minidl.export_c(model, tmp_path / "net.c")
    compile_c(tmp_path / "net.c", "-trigraphs", "-c")
    minidl.export_c(model, tmp_path / "net.c", class_names=True, header=True)
    assert [name.decode() for name in names_in(tmp_path / "net.c", len(HOSTILE))] == HOSTILE
    head = (tmp_path / "net.c").read_text().split("*/")[0]
    lines = [line.removeprefix(" * ") for line in head.splitlines()]
    assert json.loads("\n".join(lines[lines.index("    {") : lines.index("    }") + 1])) == model.metadata


def test_a_model_without_metadata_has_the_file_that_it_had(tmp_path):
    model = Sequential([Dense(2)], input_shape=(2,))
    minidl.export_c(model, tmp_path / "net.c")
    before = (tmp_path / "net.c").read_text()
    model.metadata, model.classes = {}, None
    minidl.export_c(model, tmp_path / "net.c")
    assert (tmp_path / "net.c").read_text() == before
    assert not any(word in before for word in ("Metadata", "outputs are", "net_classes"))


def test_classes_that_are_ints_are_text(tmp_path):
    model = Sequential([Dense(1)], input_shape=(2,))
    model.classes = [-1, 7]
    minidl.export_c(model, tmp_path / "net.c", class_names=True)
    assert names_in(tmp_path / "net.c", 2) == [b"-1", b"7"]
    minidl.export_c(model, tmp_path / "other.c", name="net", class_names=["no", "yes"])
    assert names_in(tmp_path / "other.c", 2) == [b"no", b"yes"]


@pytest.mark.parametrize("options", [{"softmax": True}, {"winograd": "direct"}], ids=["softmax", "direct"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_names_stay_with_a_changed_copy_of_the_model(tmp_path, options, outputs):
    model = Sequential([Conv2D(4, 3), Flatten(), Dense(outputs)], input_shape=(4, 8, 8))
    model.classes = names = ["left", "right", "up"][: max(outputs, 2)]
    trainer = Trainer(model, "softmax_cross_entropy" if outputs > 1 else "binary_cross_entropy", SGD(0.1))
    for source in (model, trainer):
        minidl.export_c(source, tmp_path / "net.c", class_names=True, **options)
        assert [name.decode() for name in names_in(tmp_path / "net.c", len(names))] == names
        minidl.export_c(source, tmp_path / "net.c", **options)
        one_score = outputs == 1 and "softmax" not in options  # of two classes: it has no names in the comment
        assert one_score or all(name in (tmp_path / "net.c").read_text().split("*/")[0] for name in names)
