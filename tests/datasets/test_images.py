"""load_images: folders of image files, their order, sizes, modes, cache and refusals; load_image: its pixels of one."""

import io
import os
import re
import struct
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from minidl import Sequential, Trainer
from minidl.datasets import decoding, images, load_image, load_images
from minidl.layers import Dense, Flatten, Rescale
from minidl.optimizers import SGD

RNG = np.random.default_rng(0)


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def pixels_of(height=4, width=6):
    return RNG.integers(0, 256, (height, width, 3)).astype("uint8")


@pytest.fixture
def folder(tmp_path):
    """Five images of 4 x 6 in two classes."""
    images = {name: pixels_of() for name in ("cat/b.png", "cat/a.PNG", "cat/deep/c.bmp", "dog/1.png", "dog/10.ppm")}
    for name, pixels in images.items():
        save(tmp_path / "pets" / name, pixels)
    return tmp_path / "pets", images


def test_order_labels_and_names(folder, tmp_path):
    where, images = folder
    (where / "cat" / "notes.txt").write_text("none")
    (where / "cat" / ".hidden.png").write_text("none")
    (where / ".git").mkdir()
    data = load_images(where, data_home=tmp_path)
    names = ["cat/a.PNG", "cat/b.png", "cat/deep/c.bmp", "dog/1.png", "dog/10.ppm"]
    assert data.file_names.tolist() == names
    assert data.class_names.tolist() == ["cat", "dog"]
    assert data.y.tolist() == [0, 0, 0, 1, 1]
    assert data.y.dtype == np.int64
    assert isinstance(data.X, np.memmap)
    assert data.X.dtype == np.uint8
    assert not data.X.flags.writeable
    np.testing.assert_array_equal(data.X, np.stack([images[name].transpose(2, 0, 1) for name in names]))


SUFFIXES = {"JPEG": ("jpg", "jpeg", "jpe", "jfif", "JPE"), "PPM": ("ppm", "pgm", "pbm", "pnm"), "PNG": ("png", "apng")}


def test_every_suffix_of_a_format_is_read(tmp_path):
    """Those that Pillow knows for the formats; PFM has floats."""
    known = {name: kind for name, kind in Image.registered_extensions().items() if kind in decoding.FORMATS}
    assert set(known) - {".pfm"} <= set(images.SUFFIXES)
    for kind, suffixes in SUFFIXES.items():
        for suffix in suffixes:
            path = tmp_path / "in" / "a" / f"{suffix}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (5, 4), "red").save(path, kind)
    data = load_images(tmp_path / "in", data_home=tmp_path)
    assert len(data.file_names) == sum(len(suffixes) for suffixes in SUFFIXES.values())


def test_the_memory_map_trains(folder, tmp_path):
    data = load_images(str(folder[0]), data_home=tmp_path)
    model = Sequential([Rescale(1 / 255), Flatten(), Dense(2)])
    history = Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(data.X, data.y, epochs=30, verbose=0)
    assert history["loss"][-1] < history["loss"][0]


def test_grey(folder, tmp_path):
    data = load_images(folder[0], channels=1, data_home=tmp_path)
    expected = Image.fromarray(folder[1]["cat/b.png"]).convert("L")
    np.testing.assert_array_equal(data.X[1, 0], np.asarray(expected))


def test_resizing(tmp_path):
    wide = np.zeros((8, 16, 3), "uint8")
    wide[:, 4:12] = 255  # the part that a crop keeps
    save(tmp_path / "in" / "c" / "wide.png", wide)
    save(tmp_path / "in" / "c" / "high.png", wide.transpose(1, 0, 2))
    crop = load_images(tmp_path / "in", size=(4, 4), data_home=tmp_path).X
    squash = load_images(tmp_path / "in", size=4, resize="squash", data_home=tmp_path).X
    assert crop.shape == squash.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(squash[0], squash[1].transpose(0, 2, 1))  # high.png, wide.png
    assert (crop[:, :, 1:3, 1:3] == 255).all()
    assert crop.min() > 200  # bilinear
    assert squash[1, 0, 0, 0] < 50 < 200 < squash[1, 0, 0, 1]
    assert load_images(tmp_path / "in", size=(2, 5), data_home=tmp_path).X.shape == (2, 3, 2, 5)


def test_a_crop_is_that_of_pillow(tmp_path):
    pixels = pixels_of(29, 47)
    save(tmp_path / "in" / "c" / "noise.png", pixels)
    expected = ImageOps.fit(Image.fromarray(pixels), (11, 13), Image.Resampling.BILINEAR)
    got = load_images(tmp_path / "in", size=(13, 11), data_home=tmp_path).X[0]
    np.testing.assert_array_equal(got, np.asarray(expected).transpose(2, 0, 1))


def test_a_size_that_fits_changes_nothing(folder, tmp_path):
    same = load_images(folder[0], size=(4, 6), data_home=tmp_path).X
    np.testing.assert_array_equal(same, load_images(folder[0], data_home=tmp_path).X)


def test_modes_and_rotation(tmp_path):
    pixels, where = pixels_of(), tmp_path / "in" / "c"
    rgba = np.concatenate([pixels, np.zeros((4, 6, 1), "uint8")], axis=2)
    save(where / "alpha.png", rgba)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a camera: the image is 6 x 4 in the file
    save(where / "turned.png", np.rot90(pixels), exif=exif)
    save(where / "grey.png", pixels[:, :, 0])
    Image.fromarray(pixels).quantize(8).save(where / "palette.gif", transparency=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = load_images(tmp_path / "in", data_home=tmp_path).X
    np.testing.assert_array_equal(X[0], pixels.transpose(2, 0, 1))
    np.testing.assert_array_equal(X[1], np.stack([pixels[:, :, 0]] * 3))
    assert X[2].shape == (3, 4, 6)
    np.testing.assert_array_equal(X[3], pixels.transpose(2, 0, 1))


def stored(tmp_path):
    return sorted((tmp_path / "minidl_data" / "images").iterdir())


def test_the_cache_is_used_until_something_changes(folder, tmp_path, monkeypatch):
    where, _ = folder
    first = load_images(where, data_home=tmp_path)
    [path] = stored(tmp_path)
    made = path.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "PIL", None)  # neither decoded nor imported
        again = load_images(where, data_home=tmp_path)
    np.testing.assert_array_equal(first.X, again.X)
    assert path.stat().st_mtime_ns == made
    load_images(where, channels=1, data_home=tmp_path)
    assert len(stored(tmp_path)) == 2

    old = first.X.copy()
    new = pixels_of()
    save(where / "dog" / "1.png", new)
    os.utime(where / "dog" / "1.png", ns=(1, 1))
    np.testing.assert_array_equal(load_images(where, data_home=tmp_path).X[3], new.transpose(2, 0, 1))
    assert len(stored(tmp_path)) == 2  # the outdated file is gone, not that of the grey images
    np.testing.assert_array_equal(first.X, old)  # but its map is not
    for nanoseconds in (10**18, 10**18 + 5 * 10**8):  # of the same size, half a second later
        save(where / "dog" / "10.ppm", new := pixels_of())
        os.utime(where / "dog" / "10.ppm", ns=(1, nanoseconds))
        np.testing.assert_array_equal(load_images(where, data_home=tmp_path).X[4], new.transpose(2, 0, 1))
    (where / "dog" / "1.png").rename(where / "dog" / "2.png")
    assert load_images(where, data_home=tmp_path).file_names.tolist()[3:] == ["dog/10.ppm", "dog/2.png"]


@pytest.mark.parametrize("damage", ["empty", "short", "text"])
def test_a_damaged_cache_is_written_again(folder, tmp_path, damage):
    expected = load_images(folder[0], data_home=tmp_path).X.copy()
    [path] = stored(tmp_path)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes({"empty": b"", "short": content[:-1], "text": b"no array"}[damage])
    np.testing.assert_array_equal(load_images(folder[0], data_home=tmp_path).X, expected)


def test_folders_of_one_name_do_not_share_a_file(tmp_path):
    for parent in ("one", "two"):
        save(tmp_path / parent / "in[1]" / "c" / "a.png", pixels_of())
    one, two = (load_images(tmp_path / parent / "in[1]", data_home=tmp_path).X for parent in ("one", "two"))
    assert not np.array_equal(one, two)
    assert len(stored(tmp_path)) == 2


def test_bad_images_are_named_and_nothing_is_kept(folder, tmp_path):
    where, _ = folder
    content = (where / "dog" / "1.png").read_bytes()
    (where / "dog" / "1.png").write_bytes(content[: len(content) // 2])
    (where / "cat" / "text.jpg").write_text("no image")
    save(where / "cat" / "deep.png", np.zeros((4, 6), "uint16"))
    with pytest.raises(ValueError, match="expected images, got") as raised:
        load_images(where, data_home=tmp_path)
    for reason in (
        r"'cat/deep.png' \(expected 8 bits a channel, got mode I;16\)",
        r"'cat/text.jpg' \([^/]*\)",
        r"'dog/1.png' \(",
    ):
        assert re.search(reason, str(raised.value))
    assert stored(tmp_path) == []
    for number in range(9):
        (where / "dog" / f"9{number}.png").write_text("no image")
    with pytest.raises(
        ValueError, match=r" and 7 more; read more bits by np.asarray\(PIL.Image.open\(file\)\).*, height, width\)$"
    ):
        load_images(where, data_home=tmp_path)


def png(width, height, depth, color, rows=b""):
    """Returns a PNG file, of any depth and any size in its head."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff(width, height, channels, order):
    """Returns a TIFF file of 16 bits a channel, with zeros."""
    data = bytes(2 * width * height * channels)
    bits = struct.pack(f"{order}{channels}H", *[16] * channels)
    tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, channels, 8), (259, 3, 1, 1), (262, 3, 1, 2)]
    tags += [(273, 4, 1, 8 + len(bits)), (277, 3, 1, channels), (278, 4, 1, height), (279, 4, 1, len(data))]
    entries = b""
    for tag, kind, count, value in tags:
        is_short = kind == 3 and count == 1
        entries += struct.pack(f"{order}HHI", tag, kind, count)
        entries += struct.pack(f"{order}HH", value, 0) if is_short else struct.pack(f"{order}I", value)
    start = 8 + len(bits) + len(data)
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, start)
    return head + bits + data + struct.pack(f"{order}H", len(tags)) + entries + bytes(4)


DEEP_FILES = {
    "rgb.png": png(6, 4, 16, 2, 4 * (b"\0" + 6 * 3 * b"\1\xff")),
    "grey_alpha.png": png(6, 4, 16, 4, 4 * (b"\0" + 6 * 2 * b"\1\xff")),
    "rgba.png": png(6, 4, 16, 6, 4 * (b"\0" + 6 * 4 * b"\1\xff")),
    "little.tif": tiff(6, 4, 3, "<"),
    "big.tif": tiff(6, 4, 3, ">"),
    "rgb.ppm": b"P6 6 4 65535\n" + 6 * 4 * 3 * b"\1\xff",
    "text.ppm": b"P3 6 4 1000\n" + 6 * 4 * 3 * b"300 ",
}


@pytest.mark.parametrize("name", DEEP_FILES)
@pytest.mark.parametrize("channels", [1, 3])
def test_more_than_8_bits_in_a_mode_of_8(folder, tmp_path, name, channels):
    (folder[0] / "dog" / name).write_bytes(DEEP_FILES[name])
    expected = rf"got 'dog/{name}' \(expected 8 bits a channel, got more in mode RGBA?\); read more bits by "
    with pytest.raises(ValueError, match=expected):
        load_images(folder[0], channels=channels, data_home=tmp_path)


def test_fewer_than_8_bits(folder, tmp_path):
    (folder[0] / "dog" / "bit.png").write_bytes(png(6, 4, 1, 0, 4 * b"\0\xa8"))
    (folder[0] / "dog" / "small.ppm").write_bytes(b"P6 6 4 100\n" + 6 * 4 * 3 * b"\x32")
    X = load_images(folder[0], data_home=tmp_path).X
    assert X.shape == (7, 3, 4, 6)
    assert X[5, 0, 0].tolist() == [255, 0] * 3


@pytest.mark.parametrize("size", [None, 4])
def test_files_that_pillow_refuses_in_other_ways_are_named(folder, tmp_path, size):
    (folder[0] / "dog" / "bomb.png").write_bytes(png(100_000, 100_000, 1, 0))
    (folder[0] / "cat" / "head.bmp").write_bytes(b"BM" + bytes(12) + b"\x0d" + bytes(60))
    (folder[0] / "cat" / "head.webp").write_bytes(b"RIFF\0\0\0\0WEBPVP8 " + bytes(40))
    with pytest.raises(
        ValueError, match=r"'cat/head.bmp' \(.*'cat/head.webp' \(.*'dog/bomb.png' \(.*decompression bomb"
    ):
        load_images(folder[0], size=size, data_home=tmp_path)


@pytest.mark.parametrize("name", ["n" * 250, "\u65e5" * 80])
def test_a_long_name_of_the_folder(folder, tmp_path, name):
    other = folder[0].rename(tmp_path / name)
    data = load_images(other, data_home=tmp_path)
    assert len(data.X) == len(load_images(other, data_home=tmp_path).X) == 5
    assert len(stored(tmp_path)) == 1


def test_several_sizes(folder, tmp_path):
    save(folder[0] / "dog" / "large.png", pixels_of(5, 9))
    with pytest.raises(
        ValueError, match=r"several: 4x6 \(5, such as 'cat/a.PNG'\), 5x9 \(1, such as 'dog/large.png'\)$"
    ):
        load_images(folder[0], data_home=tmp_path)
    assert load_images(folder[0], size=4, data_home=tmp_path).X.shape == (6, 3, 4, 4)


def test_refusals(folder, tmp_path, monkeypatch):
    where, _ = folder
    (tmp_path / "none").mkdir()
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    for options, error, message in (
        ({"size": 0}, ValueError, "size: expected at least 1"),
        ({"size": "4"}, TypeError, "size: expected an integer"),
        ({"channels": 4}, ValueError, "channels: expected 1 or 3, got 4"),
        ({"channels": True}, ValueError, "channels: expected 1 or 3, got True"),
        ({"resize": "pad"}, ValueError, "resize: expected 'crop' or 'squash'"),
        ({"folder": 3}, TypeError, "folder: expected a str"),
        ({"folder": tmp_path / "missing"}, FileNotFoundError, "missing"),
        ({"folder": tmp_path / "none"}, ValueError, "folder: expected a sub-folder for each class, got none in"),
        ({"folder": tmp_path / "empty"}, ValueError, r"for each class, got none in \['cat'\]"),
    ):
        with pytest.raises(error, match=message):
            load_images(**{"folder": where, "data_home": tmp_path, **options})
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        load_images(where, data_home=tmp_path / "file")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r'pip install "minidl\[images\]"'):
        load_images(where, data_home=tmp_path / "other")


# ---- one file


@pytest.mark.parametrize("options", [{}, {"channels": 1}, {"resize": "squash"}, {"channels": 1, "resize": "squash"}])
@pytest.mark.parametrize("size", [(5, 3), (4, 6), 9])
def test_one_file_has_the_pixels_of_the_folder(folder, tmp_path, size, options):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(folder[0] / "dog" / "turned.jpg", pixels_of(9, 5), exif=exif)
    Image.fromarray(pixels_of()).quantize(8).save(folder[0] / "dog" / "palette.gif", transparency=0)
    data = load_images(folder[0], size, data_home=tmp_path, **options)
    for name, expected in zip(data.file_names, data.X, strict=True):
        for file in (folder[0] / name, str(folder[0] / name), io.BytesIO((folder[0] / name).read_bytes())):
            image = load_image(file, size, **options)
            np.testing.assert_array_equal(image, expected)
            assert image.dtype == np.uint8 and image.flags.c_contiguous and image.flags.writeable


def test_one_file_may_only_be_readable(folder):
    class Upload:
        def read(self):
            return (folder[0] / "cat" / "b.png").read_bytes()

    np.testing.assert_array_equal(load_image(Upload()), load_image(folder[0] / "cat" / "b.png"))


def test_one_file_keeps_its_size(folder, tmp_path):
    file = folder[0] / "cat" / "b.png"
    np.testing.assert_array_equal(load_image(file), folder[1]["cat/b.png"].transpose(2, 0, 1))
    with open(file, "rb") as opened:
        opened.read(9)
        np.testing.assert_array_equal(load_image(opened), load_image(file))  # from the beginning
    other = file.rename(tmp_path / "without_suffix")
    np.testing.assert_array_equal(load_image(other), folder[1]["cat/b.png"].transpose(2, 0, 1))


def test_refusals_of_one_file(tmp_path, monkeypatch):
    text = tmp_path / "text.png"
    text.write_text("no image")
    postscript = io.BytesIO(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")  # Pillow decodes it by a program
    for options, error, message in (
        ({"file": text}, ValueError, r"file: expected an image, got '.*text.png' \(cannot identify image file\)$"),
        ({"file": postscript}, ValueError, r"got another file \(cannot identify image file\)$"),
        ({"file": io.BytesIO(DEEP_FILES["rgb.png"])}, ValueError, r"file: .*\(expected 8 bits a channel, got more in"),
        ({"file": io.BytesIO(png(100_000, 100_000, 1, 0))}, ValueError, "file: .*decompression bomb"),
        ({"file": io.BytesIO(), "size": 2**31}, ValueError, "size: expected at most 65536, got 2147483648"),
        ({"file": io.BytesIO()}, ValueError, "file: expected an image, got another file"),
        ({"file": tmp_path / "missing.png"}, FileNotFoundError, "missing.png"),
        ({"file": b"bytes"}, TypeError, "file: expected a str, os.PathLike or binary file, got b'bytes'"),
        (
            {"file": io.StringIO("text")},
            TypeError,
            "file: expected a str, os.PathLike or binary file, got <_io.StringIO",
        ),
        ({"size": 0}, ValueError, "size: expected at least 1"),
        ({"channels": 4}, ValueError, "channels: expected 1 or 3, got 4"),
        ({"resize": "pad"}, ValueError, "resize: expected 'crop' or 'squash'"),
    ):
        with pytest.raises(error, match=message):
            load_image(**{"file": text, **options})
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r'pip install "minidl\[images\]"'):
        load_image(text)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["tiff", "png", "jpg"])
def test_cameras_rotations_without_a_size(tmp_path, suffix, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(tmp_path / "in" / "a" / f"0.{suffix}", pixels_of(6, 2), exif=exif)
    one, many = load_image(tmp_path / "in" / "a" / f"0.{suffix}"), load_images(tmp_path / "in", data_home=tmp_path).X
    np.testing.assert_array_equal(many[0], one)


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 3, 5, 6, 7, 8])
def test_uncompressed_tiffs_are_turned(tmp_path, mode, orientation):
    """Pillow maps them if it gets a path, and then leaves them as they are."""
    turns = {1: (0, False), 3: (2, False), 5: (3, True), 6: (3, False), 7: (1, True), 8: (1, False)}
    pixels = np.zeros((6, 4), np.uint8) + np.uint8(255) * (RNG.random((6, 4)) < 0.5)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "in" / "a" / "0.tif"
    path.parent.mkdir(parents=True)
    Image.fromarray(pixels).convert("RGB").convert(mode).save(path, exif=exif)
    quarters, mirrored = turns[orientation]
    expected = np.rot90(pixels, quarters)
    expected = expected[:, ::-1] if mirrored else expected
    for size in (None, expected.shape):
        (image,) = load_images(tmp_path / "in", size, channels=1, data_home=tmp_path).X
        assert np.array_equal(image[0], expected)
        assert np.array_equal(load_image(path, size, channels=1), image)


def test_images_above_pillows_limit_are_refused(folder, tmp_path, monkeypatch):
    save(folder[0] / "dog" / "huge.png", np.zeros((8, 5, 3), "u1"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 39)
    expected = r"expected at most 39 pixels, got 8x5 \(the limit is PIL.Image.MAX_IMAGE_PIXELS\)"
    with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning):
        with pytest.raises(ValueError, match=rf"got 'dog/huge.png' \({expected}\)$"):
            load_images(folder[0], size=4, data_home=tmp_path)
        with pytest.raises(ValueError, match=expected):
            load_image(folder[0] / "dog" / "huge.png")
    for limit in (40, None):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        assert len(load_images(folder[0], size=4, data_home=tmp_path / str(limit)).X) == 6


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_are_ignored(folder, tmp_path):
    expected = load_images(folder[0], size=4, data_home=tmp_path).file_names.tolist()
    os.mkfifo(folder[0] / "cat" / "pipe.png")
    assert load_images(folder[0], size=4, data_home=tmp_path).file_names.tolist() == expected


def test_minidls_own_folder_is_no_class(folder):
    first, second = (load_images(folder[0], size=4, data_home=folder[0]) for _ in range(2))
    assert first.class_names.tolist() == second.class_names.tolist()
    np.testing.assert_array_equal(first.X, second.X)


def test_plain_text_bitmaps_are_read():
    bits = load_image(io.BytesIO(b"P1\n2 2\n0 1 1 0\n"), channels=1)
    assert bits.tolist() == [[[255, 0], [0, 255]]]
