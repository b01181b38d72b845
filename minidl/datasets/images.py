"""load_images: a folder of image files, with a sub-folder for each class, as one uint8 array on disk.

load_image: one file, with the same pixels.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from minidl.datasets.cache import Bunch, DataHome, copies_in, home_of, written
from minidl.utils.validation import check_choice, check_pair
from minidl_c.runtime.threads import get_num_threads

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
SUFFIXES = (
    *(".apng", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # theirs in Pillow, which knows others that run programs
DEEP = ("I", "F")  # first letters of Pillow's modes with more than 8 bits, which it would clip
DEEP_RAW = re.compile(r";16[BLNS]")  # its names of 16 bits a channel in a file, of which it keeps 8; "BGR;16" has 5
AT_A_TIME = 256  # files that are decoded before their pixels are written
NAMED = 5  # files in an error
NAME_KEPT = 40  # characters of the folder's name in that of the file: at most 160 bytes, of 255
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)  # of EXIF: values that swap height and width
TIFF_WIDTH, TIFF_HEIGHT = 256, 257  # tags
MAX_SIDE = 2**16  # pixels
RULES = 2  # changes with the pixels that are made of the same files, so that older copies are not used


def load_images(
    folder: str | os.PathLike[str],
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    resize: str = "crop",
    data_home: DataHome = None,
) -> Bunch:
    """Loads images from a folder with a sub-folder for each class.

    Deeper folders are read, too, unless they are links. Read are files ending in .apng, .bmp, .gif, .jfif, .jpe, .jpeg,
    .jpg, .pbm, .pgm, .png, .pnm, .ppm, .tif, .tiff or .webp, in any case; others and hidden ones are ignored. The first
    load decodes all images and writes X to `minidl_data/images` in `data_home`. Later loads map that file, if
    arguments, names, sizes and times of all image files are the same; its pixels are not checked again.

    Parameters
    ----------
    folder : str or os.PathLike
        The folder.
    size : int, (int, int) or None, default None
        Height and width of all images, as an int or a pair; None: the images have one size already.
    channels : 3 or 1, default 3
        3 for RGB, 1 for grey. Transparency is dropped, the rotation of cameras (EXIF) is applied.
    resize : "crop" or "squash", default "crop"
        "crop" scales until the shorter side fits, and cuts off the ends of the longer one; "squash" changes the
        proportions. Both are bilinear, and average over what they shrink.
    data_home : str, os.PathLike or None, default None
        As in `load_mnist`.

    Returns
    -------
    Bunch
        `X`, a read-only memory map, uint8 of shape (n, channels, height, width); `y`, int64 of shape (n,), the index of
        the class in `class_names`, the sorted names of the sub-folders; `file_names`, paths inside the folder, in the
        order of X: by class, then by name.

    Raises
    ------
    ImportError
        Without Pillow: pip install "minidl[images]".
    OSError
        If a folder cannot be read or written.
    ValueError
        If there are no images, if some cannot be decoded, have more than 8 bits a channel or more than
        `PIL.Image.MAX_IMAGE_PIXELS` pixels, or have several sizes without `size`. The message names files.
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    load_image : Loads one file, with the same pixels.

    Notes
    -----
    For a stratified split, use sklearn.model_selection.train_test_split on `np.arange(len(y))`.

    Examples
    --------
    >>> import os, tempfile
    >>> from PIL import Image
    >>> from minidl.datasets import load_images
    >>> with tempfile.TemporaryDirectory() as home:
    ...     for name in ("pets/cat", "pets/dog"):
    ...         os.makedirs(os.path.join(home, name))
    ...         Image.new("RGB", (12, 9), "red").save(os.path.join(home, name, "0.png"))
    ...     data = load_images(os.path.join(home, "pets"), size=8, data_home=home)
    >>> data.X.shape, data.y.tolist(), data.file_names.tolist()
    ((2, 3, 8, 8), [0, 1], ['cat/0.png', 'dog/0.png'])
    """
    request = _Request.of(size, channels, resize)
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"folder: expected a str or os.PathLike, got {folder!r}")
    place = copies_in(home_of(data_home)) / "images"
    listing = _Listing.of(Path(folder).expanduser(), place.parent)
    kept = f"{listing.folder.name[:NAME_KEPT]}-{_digest(listing.folder, request)}-"
    path = place / f"{kept}{_digest(RULES, *listing.facts)}.npy"
    X = _mapped(path, (len(listing.files), request.channels))
    if X is None:
        with written(path) as file:
            _write(file, listing, request)
        for older in place.glob(f"{glob.escape(kept)}*.npy"):
            if older != path:
                older.unlink(missing_ok=True)
        X = _mapped(path, (len(listing.files), request.channels))
        if X is None:
            raise OSError(f"{path}: expected the file that was just written, got another one")
    return Bunch(X=X, y=listing.y, class_names=np.array(listing.classes), file_names=np.array(listing.files))


def load_image(
    file: str | os.PathLike[str] | IO[bytes],
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    resize: str = "crop",
) -> NDArray[np.uint8]:
    """Loads one image, with the pixels that `load_images` makes of the same file.

    Parameters
    ----------
    file : str, os.PathLike or binary file
        The path of an image file, with any suffix, or an open file such as `io.BytesIO`, which is read from its
        beginning if it is seekable.
    size : int, (int, int) or None, default None
        Height and width, as an int or a pair; None: those of the file.
    channels : 3 or 1, default 3
        As in `load_images`.
    resize : "crop" or "squash", default "crop"
        As in `load_images`.

    Returns
    -------
    array of shape (channels, height, width)
        The pixels, uint8. `model.predict(image[np.newaxis])` predicts a batch of this one image.

    Raises
    ------
    ImportError
        Without Pillow: pip install "minidl[images]".
    OSError
        If the file cannot be read.
    ValueError
        If the image cannot be decoded, has more than 8 bits a channel, or more than `PIL.Image.MAX_IMAGE_PIXELS`
        pixels.
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    load_images : Loads a folder of files.

    Notes
    -----
    Formats are BMP, GIF, JPEG, PNG, PPM, TIFF and WebP. A small file may hold a very large image, which takes 4 bytes
    of memory a pixel. `PIL.Image.MAX_IMAGE_PIXELS`, by default 89 million, limits that; it can be set.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> from minidl.datasets import load_image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (12, 9), "red").save(file, "png")
    >>> load_image(file, size=8).shape, load_image(file).shape
    ((3, 8, 8), (3, 9, 12))
    >>> load_image(file, size=1).ravel()
    array([255,   0,   0], dtype=uint8)
    """
    request = _Request.of(size, channels, resize)
    if isinstance(file, (str, os.PathLike)):
        path = Path(file).expanduser()
        name, content = repr(str(path)), path.read_bytes()
    elif callable(getattr(file, "read", None)):
        if getattr(file, "seekable", lambda: False)():
            file.seek(0)
        name, content = "another file", file.read()
    else:
        content = None
    if not isinstance(content, bytes):
        raise TypeError(f"file: expected a str, os.PathLike or binary file, got {file!r}")
    _image_module()
    pixels = _tried(io.BytesIO(content), request)
    if isinstance(pixels, str):
        raise ValueError(f"file: expected an image, got {name} ({pixels})")
    return pixels.copy()  # contiguous, and writeable unlike Pillow's buffer


@dataclass(frozen=True)
class _Request:
    """What to make of each image."""

    size: tuple[int, int] | None  # (height, width)
    channels: int
    resize: str

    @classmethod
    def of(cls, size: Any, channels: Any, resize: Any) -> _Request:
        """Checks the arguments; raises TypeError or ValueError that names the invalid one."""
        return cls(
            None if size is None else check_pair("size", size, maximum=MAX_SIDE),
            check_choice("channels", channels, 1, 3),
            check_choice("resize", resize, "crop", "squash"),
        )


@dataclass(frozen=True)
class _Listing:
    """The image files of a folder."""

    folder: Path
    classes: list[str]
    files: list[str]  # relative to the folder
    y: NDArray[np.int64]
    facts: list[tuple[str, int, int]]  # name, size and time of each file

    @classmethod
    def of(cls, folder: Path, copies: Path) -> _Listing:
        """Lists a folder; raises OSError if it cannot be read, ValueError for a class without images, or no class.

        copies: minidl's own folder, which is no class.
        """
        folder, copies = folder.resolve(), copies.resolve()
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        classes = [name for name in names if folder / name != copies]
        if not classes:
            raise ValueError(f"folder: expected a sub-folder for each class, got none in {folder}")
        found = [list(_images_in(folder, name)) for name in classes]
        if empty := [name for name, facts in zip(classes, found, strict=True) if not facts]:
            raise ValueError(f"folder: expected images ({' '.join(SUFFIXES)}) for each class, got none in {empty}")
        y = np.repeat(np.arange(len(classes)), [len(facts) for facts in found])
        facts = [fact for one in found for fact in one]
        return cls(folder, classes, [name for name, _, _ in facts], y.astype(np.int64), facts)


def _images_in(folder: Path, name: str) -> Iterator[tuple[str, int, int]]:
    """Yields path inside the folder, size and time of the images of a class, in the order of their names."""
    for parent, folders, files in os.walk(folder / name, onerror=_raise):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for file in sorted(files):
            if file.lower().endswith(SUFFIXES) and not file.startswith("."):
                path = Path(parent, file)
                status = path.stat()
                if not stat.S_ISREG(status.st_mode):  # a pipe would wait for a writer
                    continue
                yield path.relative_to(folder).as_posix(), status.st_size, status.st_mtime_ns


def _raise(error: OSError) -> None:
    raise error


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _mapped(path: Path, expected: tuple[int, int]) -> NDArray[np.uint8] | None:
    """Returns the pixels in a file of (n, channels), without reading them; None if it is missing or has other ones."""
    with suppress(FileNotFoundError, ValueError, EOFError):
        X = np.load(path, mmap_mode="r", allow_pickle=False)
        if X.dtype == np.uint8 and X.ndim == 4 and X.shape[:2] == expected:
            return X
    return None


# ---- decoding


def _write(file: IO[bytes], listing: _Listing, request: _Request) -> None:
    """Writes the pixels of all files as .npy, some files at a time; raises ValueError for files without valid ones."""
    _image_module()
    with ThreadPoolExecutor(get_num_threads()) as pool:
        size = request.size or _common_size(listing, pool)
        shape = (len(listing.files), request.channels, *size)
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        bad: list[str] = []
        for name, pixels in _in_order(pool, lambda path: _tried_path(path, request), listing):
            if isinstance(pixels, str):
                bad.append(f"{name!r} ({pixels})")
            elif pixels.shape != shape[1:]:
                bad.append(f"{name!r} (expected {size[0]}x{size[1]} pixels, got {pixels.shape[1]}x{pixels.shape[2]})")
            elif not bad:
                file.write(pixels.tobytes())
    if bad:
        more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise ValueError(f"{listing.folder}: expected images, got {', '.join(bad[:NAMED])}{more}")


def _in_order(pool: ThreadPoolExecutor, read: Callable[[Path], T], listing: _Listing) -> Iterator[tuple[str, T]]:
    """Yields each file's name and what `read` returns for it; only AT_A_TIME results are in memory."""
    for start in range(0, len(listing.files), AT_A_TIME):
        some = listing.files[start : start + AT_A_TIME]
        yield from zip(some, pool.map(read, [listing.folder / name for name in some]), strict=True)


def _common_size(listing: _Listing, pool: ThreadPoolExecutor) -> tuple[int, int]:
    """Returns the size of all images, from the heads of their files; raises ValueError if there are several."""
    sizes, first = Counter[tuple[int, int]](), dict[tuple[int, int], str]()
    for name, size in _in_order(pool, _size_of, listing):
        if size is not None:  # else the error comes with those of decoding
            sizes[size] += 1
            first.setdefault(size, name)
    if len(sizes) > 1:
        found = [f"{h}x{w} ({count}, such as {first[h, w]!r})" for (h, w), count in sizes.most_common(NAMED)]
        more = f" and {len(sizes) - NAMED} more" if len(sizes) > NAMED else ""
        raise ValueError(f"size: expected a size, as the images have several: {', '.join(found)}{more}")
    return next(iter(sizes), (1, 1))


def _image_module() -> Any:
    """Returns Pillow's module Image; raises ImportError with the remedy."""
    try:
        from PIL import Image, ImageOps  # noqa: F401
    except ImportError as error:
        raise ImportError('reading images needs Pillow: pip install "minidl[images]"') from error
    return Image


def _size_of(path: Path) -> tuple[int, int] | None:
    """Returns the (height, width) of an image as `_pixels` has it; None if it cannot be read."""
    try:
        with _image_module().open(path, formats=FORMATS) as image:
            width, height = image.size
            if image.format == "TIFF":  # Pillow has turned the size already, depending on its version
                tags = image.tag_v2
                width, height = tags[TIFF_WIDTH], tags[TIFF_HEIGHT]
            turned = image.getexif().get(ORIENTATION) in TURNED
    except Exception:  # of any type, as in `_tried`
        return None
    return (width, height) if turned else (height, width)


def _tried_path(path: Path, request: _Request) -> NDArray[np.uint8] | str:
    """Returns the pixels of an image file, or why there are none."""
    try:
        with path.open("rb") as file:  # given a path, Pillow maps it, and leaves a TIFF that it maps unrotated
            return _tried(file, request)
    except OSError as error:
        return error.strerror or str(error)


def _tried(file: IO[bytes], request: _Request) -> NDArray[np.uint8] | str:
    """Returns the pixels in an open image file, or why there are none."""
    try:
        with _image_module().open(file, formats=FORMATS) as image:
            return _pixels(image, request)
    except Exception as error:  # of the many decoders, which raise various types for a damaged file
        return str(error).removesuffix(f" {file!r}") or type(error).__name__


def _pixels(image: Image, request: _Request) -> NDArray[np.uint8]:
    """Returns an image as uint8 (channels, height, width)."""
    from PIL import Image, ImageOps

    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        got = f"got {image.height}x{image.width} (the limit is PIL.Image.MAX_IMAGE_PIXELS)"
        raise ValueError(f"expected at most {limit} pixels, {got}")
    if image.mode.startswith(DEEP):
        raise ValueError(f"expected 8 bits a channel, got mode {image.mode}")
    if _is_cut(image):
        raise ValueError(f"expected 8 bits a channel, got more in mode {image.mode}")
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "P":
        image = image.convert("RGBA")  # Pillow warns of transparent palettes otherwise
    mode = "L" if request.channels == 1 else "RGB"
    image = image if image.mode == mode else image.convert(mode)  # which copies it
    if request.size is not None and image.size != request.size[::-1]:
        bilinear, (height, width) = Image.Resampling.BILINEAR, request.size
        if request.resize == "crop":
            image = ImageOps.fit(image, (width, height), bilinear)
        else:
            image = image.resize((width, height), bilinear)
    pixels = np.asarray(image, np.uint8)
    return pixels[np.newaxis] if request.channels == 1 else pixels.transpose(2, 0, 1)


def _is_cut(image: Image) -> bool:
    """True if Pillow keeps the high bits of the file's channels only, judging by how it is going to decode them."""
    for tile in getattr(image, "tile", ()):
        decoder, args = tile[0], tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        if decoder.startswith("ppm") and isinstance(args[-1], int) and args[-1] > 255:  # the largest value
            return True
        if any(isinstance(arg, str) and DEEP_RAW.search(arg) for arg in args):
            return True
    return False
