"""load_images(masks=): pairs of images and masks, their labels, order, names, cache and refusals; load_image(mask=)."""

import io
import os
import re
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from minidl import Sequential, Trainer
from minidl.datasets import decoding, images, load_image, load_images
from minidl.layers import Conv2D, Rescale
from minidl.losses import SoftmaxCrossEntropy
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)
COLOURS = [[0, 0, 0], [200, 10, 10], [10, 200, 10], [9, 9, 200]]


def save(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(path, **options)
    return path


def pixels_of(height=4, width=6):
    return RNG.integers(0, 256, (height, width, 3)).astype("uint8")


def labels_of(height=4, width=6, classes=4):
    return RNG.integers(0, classes, (height, width)).astype("uint8")


def with_palette(labels):
    image = Image.fromarray(labels)
    image.putpalette([value for colour in COLOURS for value in colour])
    assert image.mode == "P"
    return image


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return {"exif": exif}


@pytest.fixture
def pairs(tmp_path):
    """Images and masks of 4 x 6, by path without suffix."""
    content = {name: (pixels_of(), labels_of()) for name in ("b", "a", "c.d", "deep/0")}
    for (name, (pixels, labels)), suffix in zip(content.items(), ("png", "PNG", "bmp", "ppm"), strict=True):
        save(tmp_path / "photos" / f"{name}.{suffix}", pixels)
        save(tmp_path / "masks" / f"{name}.png", labels)
    (tmp_path / "photos" / "notes.txt").write_text("none")
    (tmp_path / "masks" / ".a.png").write_text("none")
    return content


def load(where, size=None, **options):
    return load_images(where / "photos", size, **{"masks": where / "masks", "data_home": where} | options)


def stored(where):
    return sorted((where / "minidl_data" / "images").iterdir())


# ---- what is read
@pytest.mark.parametrize("channels", [1, 3])
def test_order_names_and_arrays(pairs, tmp_path, channels):
    save(tmp_path / "masks" / "of no image.png", labels_of())
    data = load(tmp_path, channels=channels)
    assert list(data) == ["X", "y", "file_names", "mask_names"]
    assert data.file_names.tolist() == ["a.PNG", "b.png", "c.d.bmp", "deep/0.ppm"]
    assert data.mask_names.tolist() == ["a.png", "b.png", "c.d.png", "deep/0.png"]
    expected = [pairs[name] for name in ("a", "b", "c.d", "deep/0")]
    for name, pixels, labels, (image, mask) in zip(data.file_names, data.X, data.y, expected, strict=True):
        np.testing.assert_array_equal(labels, mask)
        np.testing.assert_array_equal(pixels, load_image(tmp_path / "photos" / name, channels=channels))
        assert channels == 1 or np.array_equal(pixels, image.transpose(2, 0, 1))
    for array in (data.X, data.y):
        assert isinstance(array, np.memmap) and array.dtype == np.uint8
        assert array.flags.c_contiguous and not array.flags.writeable
    assert data.X.shape == (4, channels, 4, 6) and data.y.shape == (4, 4, 6)


def test_many_pairs_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "AT_A_TIME", 3)
    for number in range(10):
        save(tmp_path / "photos" / f"x.{number}.png", np.full((3, 2, 3), number, "u1"))
        save(tmp_path / "masks" / f"x.{number}.png", np.full((3, 2), number, "u1"))
    data = load(tmp_path)
    assert (data.X[:, 0, 0, 0] == np.arange(10)).all() and (data.y[:, 2, 1] == np.arange(10)).all()


def test_a_folder_inside_the_other_is_left_out(tmp_path):
    for name in ("photos/0.png", "photos/x/masks/0.png"):
        save(tmp_path / name, labels_of())
    data = load(tmp_path, masks=str(tmp_path / "photos" / "x" / "masks"))
    assert data.file_names.tolist() == data.mask_names.tolist() == ["0.png"]
    save(tmp_path / "out" / "in" / "0.png", labels_of())
    save(tmp_path / "out" / "0.png", labels_of())
    data = load_images(tmp_path / "out" / "in", masks=tmp_path / "out", data_home=tmp_path)
    assert data.mask_names.tolist() == ["0.png"]


def test_pairs_train(pairs, tmp_path):
    data = load(tmp_path)
    model = Sequential([Rescale(1 / 255), Conv2D(4, 3, padding=1)], input_shape=data.X.shape[1:])
    trainer = Trainer(model, SoftmaxCrossEntropy(), SGD(0.5), ["accuracy"])
    history = trainer.fit(data.X, data.y, epochs=20, verbose=0)
    assert history["loss"][-1] < history["loss"][0]


# ---- labels
MASKS = {  # name: image, labels
    "grey.png": lambda labels: Image.fromarray(labels),
    "palette.png": with_palette,
    "palette.gif": with_palette,
    "grey.tif": lambda labels: Image.fromarray(labels),
    "grey.bmp": lambda labels: Image.fromarray(labels),
    "grey.pgm": lambda labels: Image.fromarray(labels),
    "deep.png": lambda labels: Image.fromarray(labels.astype("u2")),
    "deep.tif": lambda labels: Image.fromarray(labels.astype("u2")),
    "integers.tif": lambda labels: Image.fromarray(labels.astype("i4")),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_labels_are_values_or_indices(tmp_path, name, orientation):
    labels = labels_of()
    options = turned(orientation) if name.endswith(("png", "tif")) else {}
    path = save(tmp_path / "masks" / name, MASKS[name](labels), **options)
    expected = np.rot90(labels, {1: 0, 3: 2, 6: 3}[orientation if options else 1])
    found = load_image(path, mask=True)
    assert found.dtype == np.uint8 and found.flags.writeable and found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected)
    assert set(np.unique(load_image(path, (9, 5), mask=True))) <= set(range(4))


def test_a_transparent_palette_keeps_its_indices(tmp_path):
    labels = labels_of()
    path = save(tmp_path / "0.png", with_palette(labels), transparency=0)
    np.testing.assert_array_equal(load_image(path, mask=True), labels)


def test_black_and_white(tmp_path):
    bits = labels_of(classes=2)
    for name in ("0.png", "0.tif", "0.pbm"):
        path = save(tmp_path / name, Image.fromarray(bits * 255).convert("1"))
        np.testing.assert_array_equal(load_image(path, mask=True), bits)
    path = save(tmp_path / "255.png", bits * 255)
    np.testing.assert_array_equal(load_image(path, mask=True), bits * 255)
    assert load_image(io.BytesIO(b"P1\n2 2\n0 1 1 0\n"), mask=True).tolist() == [[1, 0], [0, 1]]


def test_palettes_of_few_bits(tmp_path):
    labels = labels_of()
    path = save(tmp_path / "0.png", with_palette(labels), bits=2)
    with Image.open(path) as image:
        assert image.tile[0][3] == "P;2"
    np.testing.assert_array_equal(load_image(path, mask=True), labels)


REFUSED = {  # name: content of a mask, error
    "rgb.png": (Image.new("RGB", (6, 4)), "expected one label a pixel, got mode RGB"),
    "rgba.png": (Image.new("RGBA", (6, 4)), "expected one label a pixel, got mode RGBA"),
    "alpha.png": (Image.new("LA", (6, 4)), "expected one label a pixel, got mode LA"),
    "float.tif": (Image.new("F", (6, 4)), "expected one label a pixel, got mode F"),
    "deep.png": (Image.fromarray(np.full((4, 6), 256, "u2")), "expected labels from 0 to 255, got 256 to 256"),
    "negative.tif": (Image.fromarray(np.full((4, 6), -1, "i4")), "expected labels from 0 to 255, got -1 to -1"),
    "scaled.pgm": (b"P5 6 4 3\n" + bytes(24), "expected labels of 8 bits, got other ones, which Pillow scales to 255"),
    "text.png": (b"none", "cannot identify image file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_masks_without_labels_are_refused(pairs, tmp_path, name):
    content, error = REFUSED[name]
    path = tmp_path / "masks" / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save(path, content)
    remedy = "; make labels first, by .* as PNG by Image.fromarray" if "one label" in error else "$"
    with pytest.raises(ValueError, match=rf"file: expected a mask, got .*{name}' \({error}.*\){remedy}"):
        load_image(path, mask=True)
    save(tmp_path / "photos" / path.with_suffix(".jpg").name, pixels_of())
    with pytest.raises(ValueError, match=rf"masks: expected masks, got '{name}' \({error}.*\){remedy}"):
        load(tmp_path)
    assert stored(tmp_path) == []


def test_four_bits_of_grey_are_refused(tmp_path):
    path = save(tmp_path / "0.png", with_palette(labels_of()), bits=4)
    content = bytearray(path.read_bytes())
    assert content[25] == 3  # the colour type of a palette
    content[25] = 0
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    with pytest.raises(ValueError, match="expected labels of 8 bits, got other ones"):
        load_image(io.BytesIO(content), mask=True)


# ---- scaling and turning
@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize("size", [(5, 3), (4, 6), 9, (20, 30)])
def test_images_and_masks_are_cut_alike(tmp_path, size, resize):
    """A mask with the values of its image has them in the pixels that are no mixture of two."""
    shown = np.zeros((13, 21), "u1")
    shown[4:, 9:] = 255
    shown[:2] = 255
    save(tmp_path / "photos" / "0.png", shown)
    save(tmp_path / "masks" / "0.png", shown)
    data = load(tmp_path, size, channels=1, resize=resize)
    clear = (data.X[0, 0] == 0) | (data.X[0, 0] == 255)
    assert clear.mean() > 0.1
    np.testing.assert_array_equal(data.X[0, 0][clear], data.y[0][clear])
    assert set(np.unique(data.y)) <= {0, 255}


def test_a_crop_is_that_of_pillow(tmp_path):
    labels = labels_of(29, 47, classes=256)
    save(tmp_path / "photos" / "0.png", pixels_of(29, 47))
    path = save(tmp_path / "masks" / "0.png", labels)
    expected = ImageOps.fit(Image.fromarray(labels), (11, 13), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(load(tmp_path, (13, 11)).y[0], np.asarray(expected))
    np.testing.assert_array_equal(load_image(path, (13, 11), mask=True), np.asarray(expected))
    squashed = Image.fromarray(labels).resize((11, 13), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(load_image(path, (13, 11), resize="squash", mask=True), np.asarray(squashed))


def test_each_of_a_pair_is_turned_by_its_own_exif(tmp_path):
    pixels, labels = pixels_of(), labels_of()
    save(tmp_path / "photos" / "0.png", np.rot90(pixels), **turned(6))
    save(tmp_path / "masks" / "0.png", labels)
    save(tmp_path / "photos" / "1.png", np.rot90(pixels), **turned(6))
    save(tmp_path / "masks" / "1.png", with_palette(np.rot90(labels)), **turned(6))
    for size in (None, (4, 6)):
        data = load(tmp_path, size)
        for image, mask in zip(data.X, data.y, strict=True):
            np.testing.assert_array_equal(image, pixels.transpose(2, 0, 1))
            np.testing.assert_array_equal(mask, labels)


@pytest.mark.parametrize("size", [None, (4, 6), 3])
def test_pairs_of_two_sizes_are_refused(pairs, tmp_path, size):
    save(tmp_path / "masks" / "b.png", labels_of(8, 12))
    save(tmp_path / "masks" / "deep" / "0.png", labels_of(4, 6), **turned(6))
    expected = r"masks: expected masks, got 'b.png' \(expected 4x6 pixels, as 'b.png', got 8x12\), "
    expected += r"'deep/0.png' \(expected 4x6 pixels, as 'deep/0.ppm', got 6x4\)$"
    with pytest.raises(ValueError, match=expected):
        load(tmp_path, size)


def test_pairs_of_several_sizes_need_a_size(pairs, tmp_path):
    for folder, content in (("photos", pixels_of(8, 8)), ("masks", labels_of(8, 8))):
        save(tmp_path / folder / "b.png", content)
    with pytest.raises(ValueError, match=r"size: expected a size, .*: 4x6 \(3, such as 'a.PNG'\), 8x8 \(1, such"):
        load(tmp_path)
    assert load(tmp_path, 4).y.shape == (4, 4, 4)


# ---- the cache
def test_the_cache_is_used_until_a_mask_changes(pairs, tmp_path, monkeypatch):
    first = load(tmp_path)
    assert len(stored(tmp_path)) == 1
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "_pixels", None)  # nothing is decoded
        again = load(tmp_path)
    np.testing.assert_array_equal(again.y, first.y)
    np.testing.assert_array_equal(again.X, first.X)
    path, old = tmp_path / "masks" / "c.d.png", first.y.copy()
    for moment in (1, 10**18, 10**18 + 5 * 10**8):
        save(path, new := labels_of())
        os.utime(path, ns=(1, moment))
        np.testing.assert_array_equal(load(tmp_path).y[2], new)
        assert len(stored(tmp_path)) == 1
    np.testing.assert_array_equal(first.y, old)  # its map stays as it was
    path.rename(path.with_suffix(".bmp"))
    with pytest.raises(ValueError, match=r"'c.d.bmp' with none"):
        path.with_suffix(".bmp").rename(tmp_path / "other.bmp")
        load(tmp_path)
    (tmp_path / "other.bmp").rename(path.with_suffix(".tif"))
    assert load(tmp_path).mask_names[2] == "c.d.tif"
    save(tmp_path / "photos" / "b.png", new := pixels_of())
    os.utime(tmp_path / "photos" / "b.png", ns=(1, 1))
    np.testing.assert_array_equal(load(tmp_path).X[1], new.transpose(2, 0, 1))


def test_other_masks_have_another_file(pairs, tmp_path):
    first = load(tmp_path).y.copy()
    for name in pairs:
        save(tmp_path / "other" / f"{name}.png", labels_of())
    other = load(tmp_path, masks=tmp_path / "other").y
    assert len(stored(tmp_path)) == 2 and not np.array_equal(first, other)
    np.testing.assert_array_equal(load(tmp_path).y, first)


@pytest.mark.parametrize("damage", ["empty", "short", "missing", "images alone", "other axes"])
def test_a_damaged_cache_is_written_again(pairs, tmp_path, damage):
    first = load(tmp_path)
    expected = {name: first[name].copy() for name in ("X", "y")}
    [path] = stored(tmp_path)
    content = path.read_bytes()
    path.unlink()
    if damage == "images alone":
        np.save(path, expected["X"].reshape(-1, 4, 6))
    elif damage == "other axes":
        np.save(path, np.zeros((4 * 3 + 4, 1, 4, 6), "u1"))
    elif damage != "missing":
        path.write_bytes({"empty": b"", "short": content[:-1]}[damage])
    data = load(tmp_path)
    for name, array in expected.items():
        np.testing.assert_array_equal(data[name], array)


def test_a_load_that_fails_leaves_the_old_file(pairs, tmp_path):
    load(tmp_path)
    [path] = stored(tmp_path)
    content, mask = path.read_bytes(), (tmp_path / "masks" / "b.png").read_bytes()
    status = (tmp_path / "masks" / "b.png").stat()
    (tmp_path / "masks" / "b.png").write_bytes(b"none")
    with pytest.raises(ValueError, match=r"expected masks, got 'b.png'"):
        load(tmp_path)
    assert [one.read_bytes() for one in stored(tmp_path)] == [content]
    (tmp_path / "masks" / "b.png").write_bytes(mask)
    os.utime(tmp_path / "masks" / "b.png", ns=(1, status.st_mtime_ns))
    np.testing.assert_array_equal(load(tmp_path).y[1], pairs["b"][1])


# ---- refusals
def test_images_and_masks_that_do_not_match(pairs, tmp_path):
    save(tmp_path / "photos" / "0.jpg", pixels_of())
    save(tmp_path / "masks" / "0_mask.png", labels_of())
    save(tmp_path / "masks" / "a.gif", labels_of())
    save(tmp_path / "photos" / "b.jpg", pixels_of())
    with pytest.raises(
        ValueError, match=r"masks: expected one mask in .*masks for each image, of the same name"
    ) as raised:
        load(tmp_path)
    found = (
        "got '0.jpg' with none, 'a.PNG' with 'a.gif' and 'a.png', 'b.jpg' and 'b.png' with 'b.png'; there are others"
    )
    assert found in str(raised.value) and "such as '0_mask.png'" in str(raised.value)
    for number in range(4, 9):
        save(tmp_path / "photos" / f"{number}.jpg", pixels_of())
    with pytest.raises(ValueError, match=r"'6.jpg' with none, '7.jpg' with none and 3 more"):
        load(tmp_path)


def test_invalid_arguments(pairs, tmp_path):
    (tmp_path / "empty").mkdir()
    for options, error, message in (
        ({"masks": 3}, TypeError, "masks: expected a str or os.PathLike, got 3"),
        ({"masks": tmp_path / "photos"}, ValueError, "masks: expected another folder than that of the images"),
        ({"masks": tmp_path / "nowhere"}, FileNotFoundError, "nowhere"),
        (
            {"masks": tmp_path / "empty"},
            ValueError,
            "masks: expected one mask in .*, got 'a.PNG' with none, .* with none$",
        ),
        ({"folder": tmp_path / "empty"}, ValueError, r"folder: expected images \(.apng .*\), got none in .*empty"),
        ({"folder": tmp_path / "nowhere"}, FileNotFoundError, "nowhere"),
    ):
        with pytest.raises(error, match=message):
            load_images(**{"folder": tmp_path / "photos", "masks": tmp_path / "masks", "data_home": tmp_path} | options)
    with pytest.raises(TypeError, match="mask: expected True or False, got 'yes'"):
        load_image(tmp_path / "masks" / "a.png", mask="yes")


@pytest.mark.parametrize("names", [("images", "masks"), ("Img", "Mask", "annotations"), ("image", "labels")])
def test_folders_of_pairs_are_no_classes(tmp_path, names):
    for name in names:
        save(tmp_path / "in" / name / "0.png", labels_of())
    call = rf"load_images\(folder / '{names[0]}', masks=folder / '{names[1]}'\)"
    with pytest.raises(
        ValueError, match=rf"folder: expected a sub-folder for each class, got \[.*; for pairs, {call}$"
    ):
        load_images(tmp_path / "in", data_home=tmp_path)
    save(tmp_path / "in" / "other" / "0.png", labels_of())
    assert len(load_images(tmp_path / "in", data_home=tmp_path).class_names) == len(names) + 1


def test_a_folder_without_classes_names_masks(tmp_path):
    save(tmp_path / "in" / "0.png", labels_of())
    with pytest.raises(ValueError, match=r"for each class, got none in .*in; of pairs, masks="):
        load_images(tmp_path / "in", data_home=tmp_path)


def test_images_of_16_bits_name_the_way_out(pairs, tmp_path):
    path = save(tmp_path / "photos" / "b.png", np.full((4, 6), 300, "u2"))
    way = re.escape(
        "; read more bits by np.asarray(PIL.Image.open(file)) if grey, or by tifffile.imread(file), scale them"
    )
    with pytest.raises(ValueError, match=rf"expected images, got 'b.png' \(expected 8 bits .* mode I;16\){way}"):
        load(tmp_path)
    with pytest.raises(ValueError, match=way):
        load_image(path)
