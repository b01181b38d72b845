"""Tensors in other files are read if asked for, and only from inside the model's folder."""

import os

import numpy as np
import pytest

from minidl import FileError, Sequential
from minidl.layers import Dense, ReLU
from minidl.onnx import export, import_model

pytestmark = pytest.mark.oracle("onnx")


@pytest.fixture
def model():
    return Sequential([Dense(300), ReLU(), Dense(2)], input_shape=(400,))


@pytest.fixture
def path(model, tmp_path):
    """Returns the path of the model with its tensors in weights.bin."""
    folder = tmp_path / "net"
    folder.mkdir()
    return save(model, folder / "model.onnx")


def save(model, path, **options):
    import onnx

    export(model, path)
    options = {"location": "weights.bin", "size_threshold": 0, "all_tensors_to_one_file": True, **options}
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, **options)
    return path


def edit(path, index=0, **entries):
    """Replaces entries of a tensor's external data; None removes one."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    tensor = model.graph.initializer[index]
    found = {entry.key: entry.value for entry in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in found.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("options", [{}, {"all_tensors_to_one_file": False}, {"convert_attribute": True}])
@pytest.mark.parametrize("metadata", [True, False])
def test_external_data(options, metadata, model, tmp_path, rng, monkeypatch):
    import onnx

    x, path = rng.random((20, 400)).astype("f4"), save(model, tmp_path / "model.onnx", **options)
    if not metadata:
        proto = onnx.load(str(path), load_external_data=False)
        del proto.metadata_props[:]
        path.write_bytes(proto.SerializeToString())
    assert path.stat().st_size < 5000
    assert np.array_equal(import_model(path, external_data=True).predict(x), model.predict(x))
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(import_model("model.onnx", external_data=True).predict(x), model.predict(x))


def test_constants_in_attributes(tmp_path, rng):
    import onnx
    from onnx import helper, numpy_helper
    from onnx_models.graphs import Graph

    g, weight = Graph((4,)), rng.random((4, 2)).astype("f4")
    g.nodes.append(helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weight, "w")))
    path, x = tmp_path / "model.onnx", rng.random((5, 4)).astype("f4")
    model = g.append("MatMul", "w").model(out_shape=(None, 2))
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0, convert_attribute=True)
    assert (tmp_path / "w.bin").exists()
    with pytest.raises(ValueError, match=r"tensor 'w': .* or pass external_data=True"):
        import_model(path)
    np.testing.assert_allclose(import_model(path, external_data=True).predict(x), x @ weight, 1e-6)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(FileError, match=r"tensor 'w': external data: expected a readable file 'w\.bin'"):
        import_model(path, external_data=True)


def test_length_and_offset_may_be_omitted(path, model):
    back = import_model(edit(path, offset=None, length=None), external_data=True)
    assert np.array_equal(back.params["0.weight"].value, model.params["0.weight"].value)


def test_an_empty_list_of_tensors_does_not_read(model, tmp_path):
    export(model, tmp_path / "model.onnx")
    assert repr(import_model(tmp_path / "model.onnx", external_data=True)) == repr(model)


OUTSIDE = ["", "..", "../secret.bin", "a/../../secret.bin", "./../net/../secret.bin", "a\0b", "."]


@pytest.mark.parametrize("location", [*OUTSIDE, "/etc/passwd", None])
def test_locations_outside_the_folder(location, path):
    (path.parent.parent / "secret.bin").write_bytes(bytes(480_000))
    with pytest.raises(FileError, match=r"model\.onnx: tensor '0\.weight': external data: expected a path inside the"):
        import_model(edit(path, location=location), external_data=True)


@pytest.mark.parametrize("how", ["file", "folder", "absolute"])
def test_links_that_lead_outside(how, path, tmp_path):
    outside = tmp_path / "net-outside"  # begins like the model's folder
    outside.mkdir()
    (outside / "w.bin").write_bytes(bytes(480_000))
    if how == "folder":
        (path.parent / "inner").symlink_to("../net-outside")
    else:
        (path.parent / "w.bin").symlink_to(outside / "w.bin" if how == "absolute" else "../net-outside/w.bin")
    location = "inner/w.bin" if how == "folder" else "w.bin"
    with pytest.raises(FileError, match=r"tensor '0\.weight': .* got a link to '.*net-outside/w\.bin'"):
        import_model(edit(path, location=location, offset="0"), external_data=True)


def test_links_inside_the_folder_and_to_the_folder(path, tmp_path, model):
    (path.parent / "link.bin").symlink_to("weights.bin")
    (tmp_path / "alias").symlink_to("net")
    back = import_model(tmp_path / "alias" / edit(path, location="link.bin").name, external_data=True)
    assert np.array_equal(back.params["0.weight"].value, model.params["0.weight"].value)


@pytest.mark.parametrize("what", ["folder", "fifo", "missing"])
def test_what_is_not_a_regular_file(what, path):
    target = path.parent / "odd"
    if what == "folder":
        target.mkdir()
    elif what == "fifo":
        os.mkfifo(target)
    with pytest.raises(FileError, match=r"tensor '0\.weight': external data: expected a readable file 'odd', got: "):
        import_model(edit(path, location="odd"), external_data=True)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "-1"}, "expected a whole number as offset, got '-1'"),
        ({"offset": "1.0"}, "expected a whole number as offset, got '1.0'"),
        ({"offset": "9" * 5000}, "expected a whole number as offset, got '999"),
        ({"offset": "٣"}, "expected a whole number as offset, got"),
        ({"length": ""}, "expected a whole number as length, got ''"),
        ({"length": "479999"}, "expected 480000 bytes, for its shape, got a length of 479999"),
        ({"length": "480001"}, "expected 480000 bytes, for its shape, got a length of 480001"),
        ({"offset": "900000000000000000"}, "got a file of "),
        ({"offset": "9999999"}, r"in 'weights\.bin': expected bytes at \[9999999, 10479999\], got a file of "),
    ],
)
def test_invalid_offsets_and_lengths(entries, message, path):
    with pytest.raises(FileError, match=rf"tensor '0\.weight': external data.*{message}"):
        import_model(edit(path, **entries), external_data=True)


def test_other_invalid_references(path):
    import onnx

    good = path.read_bytes()

    def refused(change, message):
        model = onnx.load_model_from_string(good)
        change(model.graph.initializer[0])
        path.write_bytes(model.SerializeToString())
        with pytest.raises(FileError, match=message):
            import_model(path, external_data=True)

    refused(
        lambda t: t.external_data.add(key="offset", value="0"), "'0.weight': external data: expected one offset, got"
    )
    refused(lambda t: setattr(t, "raw_data", bytes(480_000)), "'0.weight': expected its values once, got them here and")
    refused(lambda t: setattr(t, "data_type", 8), "expected external data of numbers, .* got STRING of shape")
    refused(lambda t: t.dims.__setitem__(0, -1), r"and a shape of sizes, got FLOAT of shape \[-1, 400\]")
    refused(
        lambda t: t.dims.__setitem__(slice(None), [2**40, 2**40]), "expected 4835703278458516698824704 bytes, for its"
    )


def test_the_argument_is_checked(path):
    with pytest.raises(TypeError, match="external_data: expected"):
        import_model(path, external_data="yes")
