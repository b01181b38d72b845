"""load_images: folders of image files, with a sub-folder for each class or with masks, as uint8 arrays in one file.

load_image: one file, with the same pixels or labels.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
from numpy.typing import NDArray

from minidl.datasets.cache import Bunch, DataHome, copies_in, home_of, written
from minidl.datasets.decoding import Request, image_module, remedy, size_of, tried, tried_path
from minidl.utils.errors import InputError
from minidl_c.runtime.threads import get_num_threads

T = TypeVar("T")
SUFFIXES = (
    *(".apng", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)
AT_A_TIME = 256  # files that are decoded before their pixels are written
NAMED = 5  # files in an error
NAME_KEPT = 40  # characters of the folder's name in that of the file: at most 160 bytes, of 255
OF_IMAGES = ("images", "image", "imgs", "img")  # names of folders that are no classes
OF_MASKS = ("masks", "mask", "labels", "annotations")
RULES = 2  # changes with the pixels that are made of the same files, so that older copies are not used


def load_images(
    folder: str | os.PathLike[str],
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    resize: str = "crop",
    data_home: DataHome = None,
    masks: str | os.PathLike[str] | None = None,
) -> Bunch:
    """Loads images from a folder with a sub-folder for each class, or pairs of images and masks from two folders.

    Deeper folders are read, too, unless they are links. Read are files ending in .apng, .bmp, .gif, .jfif, .jpe, .jpeg,
    .jpg, .pbm, .pgm, .png, .pnm, .ppm, .tif, .tiff or .webp, in any case; others and hidden ones are ignored. The first
    load decodes all images and writes their pixels to a file in `minidl_data/images` of `data_home`, together with the
    labels of masks. Later loads map that file, if arguments, names, sizes and times of all files, also of the masks,
    are the same; its content is not checked again.

    Parameters
    ----------
    folder : str or os.PathLike
        The folder of the images. With `masks`, its sub-folders are no classes.
    size : int, (int, int) or None, default None
        Height and width of all images, as an int or a pair; None: the images have one size already.
    channels : 3 or 1, default 3
        3 for RGB, 1 for grey. Transparency is dropped, the rotation of cameras (EXIF) is applied.
    resize : "crop" or "squash", default "crop"
        "crop" scales until the shorter side fits, and cuts off the ends of the longer one; "squash" changes the
        proportions. Both are bilinear, and average over what they shrink.
    data_home : str, os.PathLike or None, default None
        As in `load_mnist`.
    masks : str, os.PathLike or None, default None
        The folder of the masks, images of labels. Each image has one mask: the file with the same path inside this
        folder, up to the suffix. Masks without an image are ignored.

    Returns
    -------
    Bunch
        `X`, a read-only memory map, uint8 of shape (n, channels, height, width); `y`, int64 of shape (n,), the index of
        the class in `class_names`, the sorted names of the sub-folders; `file_names`, paths inside the folder, in the
        order of X: by class, then by name.

        With `masks`, `y` holds the labels of all pixels, a read-only memory map, uint8 of shape (n, height, width), and
        `mask_names` the paths of the masks. X is in the order of the paths. There are no `class_names`.

    Raises
    ------
    ImportError
        Without Pillow: pip install "minidl[images]".
    OSError
        If a folder cannot be read or written.
    ValueError
        If there are no images, if some cannot be decoded, have more than 8 bits a channel or more than
        `PIL.Image.MAX_IMAGE_PIXELS` pixels, or have several sizes without `size`; if an image has no mask, several, or
        one of another size, or a mask has colours. The message names files.
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    load_image : Loads one file, with the same pixels.

    Notes
    -----
    For a stratified split, use sklearn.model_selection.train_test_split on `np.arange(len(y))`.

    Labels are the values of a grey mask, the indices of one with a palette, or 0 and 1 of one with 1 bit. So masks of 0
    and 255 have the labels 0 and 255: `y // 255` makes 0 and 1 of them. Masks are cut, scaled and turned as their
    images, but each label is that of the nearest pixel. JPEG changes labels: it fits only masks of two values, of which
    `y > 127` restores the labels.

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

    Pairs for a segmentation:

    >>> with tempfile.TemporaryDirectory() as home:
    ...     for name, mode in (("photos", "RGB"), ("masks", "L")):
    ...         os.makedirs(os.path.join(home, name))
    ...         Image.new(mode, (12, 9)).save(os.path.join(home, name, "0.png"))
    ...     data = load_images(os.path.join(home, "photos"), 8, data_home=home, masks=os.path.join(home, "masks"))
    >>> data.X.shape, data.y.shape, data.y.dtype, data.mask_names.tolist()
    ((1, 3, 8, 8), (1, 8, 8), dtype('uint8'), ['0.png'])
    """
    request = Request.of(size, channels, resize)
    for argument, value in {"folder": folder, "masks": "" if masks is None else masks}.items():
        if not isinstance(value, (str, os.PathLike)):
            raise TypeError(f"{argument}: expected a str or os.PathLike, got {value!r}")
    place = copies_in(home_of(data_home)) / "images"
    if masks is None:
        listing = _Listing.of_classes(Path(folder).expanduser(), place.parent)
    else:
        listing = _Listing.of_pairs(Path(folder).expanduser(), Path(masks).expanduser())
    folders = [one for one in (listing.folder, listing.mask_folder) if one]
    kept = f"{listing.folder.name[:NAME_KEPT]}-{_digest(*folders, request)}-"
    path = place / f"{kept}{_digest(RULES, *listing.facts)}.npy"
    n, of_images = len(listing.files), len(listing.files) * request.channels
    planes = _mapped(path, of_images + len(listing.masks))
    if planes is None:
        with written(path) as file:
            _write(file, listing, request)
        for older in place.glob(f"{glob.escape(kept)}*.npy"):
            if older != path:
                older.unlink(missing_ok=True)
        planes = _mapped(path, of_images + len(listing.masks))
        if planes is None:
            raise OSError(f"{path}: expected the file that was just written, got another one")
    X, names = planes[:of_images].reshape(n, request.channels, *planes.shape[1:]), np.array(listing.files)
    if masks is None:
        return Bunch(X=X, y=listing.y, class_names=np.array(listing.classes), file_names=names)
    return Bunch(X=X, y=planes[of_images:], file_names=names, mask_names=np.array(listing.masks))


def load_image(
    file: str | os.PathLike[str] | IO[bytes],
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    resize: str = "crop",
    mask: bool = False,
) -> NDArray[np.uint8]:
    """Loads one image or mask, with the pixels or labels that `load_images` makes of the same file.

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
    mask : bool, default False
        Whether the file is a mask, read as those of `load_images(masks=)`; `channels` has no effect then.

    Returns
    -------
    array of shape (channels, height, width), or (height, width) of a mask
        The pixels or labels, uint8. `model.predict(image[np.newaxis])` predicts a batch of this one image.

    Raises
    ------
    ImportError
        Without Pillow: pip install "minidl[images]".
    OSError
        If the file cannot be read.
    ValueError
        If the image cannot be decoded, has more than 8 bits a channel, or more than `PIL.Image.MAX_IMAGE_PIXELS`
        pixels; if a mask has colours. It is an InputError for an open file, the bytes of which a caller may have sent.
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
    >>> file = io.BytesIO()
    >>> Image.new("L", (12, 9), 7).save(file, "png")
    >>> load_image(file, size=2, mask=True)
    array([[7, 7],
           [7, 7]], dtype=uint8)
    """
    request = Request.of(size, channels, resize, mask)
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
    image_module()
    pixels = tried(io.BytesIO(content), request)
    if isinstance(pixels, str):
        kind = ValueError if isinstance(file, (str, os.PathLike)) else InputError  # the bytes of a caller
        raise kind(f"file: expected {'a mask' if mask else 'an image'}, got {name} ({pixels}){remedy(pixels)}")
    return pixels.copy()  # contiguous, and writeable unlike Pillow's buffer


Fact = tuple[str, int, int]  # path inside a folder, size and time of a file


@dataclass(frozen=True)
class _Listing:
    """The image files of a folder, and their masks in another one."""

    folder: Path
    files: list[str]  # relative to the folder
    facts: list[Fact]  # of all files
    classes: list[str] = field(default_factory=list)
    y: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    mask_folder: Path | None = None
    masks: list[str] = field(default_factory=list)

    @classmethod
    def of_classes(cls, folder: Path, copies: Path) -> _Listing:
        """Lists a folder; raises OSError if it cannot be read, ValueError for a class without images, or no class.

        copies: minidl's own folder, which is no class.
        """
        folder, copies = folder.resolve(), copies.resolve()
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        classes = [name for name in names if folder / name != copies]
        if not classes:
            raise ValueError(f"folder: expected a sub-folder for each class, got none in {folder}; of pairs, masks=")
        images, masks = ([name for name in classes if name.lower() in known] for known in (OF_IMAGES, OF_MASKS))
        if images and masks and len(images) + len(masks) == len(classes):
            call = f"load_images(folder / {images[0]!r}, masks=folder / {masks[0]!r})"
            raise ValueError(
                f"folder: expected a sub-folder for each class, got {classes} in {folder}; for pairs, {call}"
            )
        found = [list(_images_in(folder / name, folder)) for name in classes]
        if empty := [name for name, facts in zip(classes, found, strict=True) if not facts]:
            raise ValueError(f"folder: expected images ({' '.join(SUFFIXES)}) for each class, got none in {empty}")
        y = np.repeat(np.arange(len(classes)), [len(facts) for facts in found])
        facts = [fact for one in found for fact in one]
        return cls(folder, [name for name, _, _ in facts], facts, classes, y.astype(np.int64))

    @classmethod
    def of_pairs(cls, folder: Path, masks: Path) -> _Listing:
        """Lists two folders; raises OSError if one cannot be read, ValueError unless each image has one mask."""
        folder, masks = folder.resolve(), masks.resolve()
        if folder == masks:
            raise ValueError(f"masks: expected another folder than that of the images, got {masks}")
        pairs: dict[str, tuple[list[Fact], list[Fact]]] = {}
        for side, (where, other) in enumerate(((folder, masks), (masks, folder))):
            for fact in _images_in(where, where, other):
                pairs.setdefault(fact[0].rpartition(".")[0], ([], []))[side].append(fact)
        taken = [pairs[name] for name in sorted(pairs) if pairs[name][0]]
        if not taken:
            raise ValueError(f"folder: expected images ({' '.join(SUFFIXES)}), got none in {folder}")
        if wrong := [pair for pair in taken if (len(pair[0]), len(pair[1])) != (1, 1)]:
            found = [f"{_quoted(files)} with {_quoted(of_them) or 'none'}" for files, of_them in wrong]
            others = [files for images, files in pairs.values() if not images]
            such = f"; there are others, such as {_quoted(others[0])}" if others else ""
            expected = f"masks: expected one mask in {masks} for each image, of the same name up to the suffix"
            raise ValueError(f"{expected}, got {_some(found)}{such}")
        facts = [[pair[side][0] for pair in taken] for side in (0, 1)]
        names, mask_names = ([name for name, _, _ in one] for one in facts)
        return cls(folder, names, facts[0] + facts[1], mask_folder=masks, masks=mask_names)


def _quoted(facts: list[Fact]) -> str:
    return " and ".join(repr(name) for name, _, _ in facts)


def _some(found: list[str]) -> str:
    """Returns the first of them, and the number of others."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{', '.join(found[:NAMED])}{more}"


def _images_in(where: Path, folder: Path, without: Path | None = None) -> Iterator[Fact]:
    """Yields the facts of images in a folder, with paths inside `folder`, in the order of their names."""
    for parent, folders, files in os.walk(where, onerror=_raise):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and Path(parent, one) != without)
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


def _mapped(path: Path, expected: int) -> NDArray[np.uint8] | None:
    """Returns the planes in a file, without reading them; None if it is missing or has another number of them."""
    with suppress(FileNotFoundError, ValueError, EOFError):
        planes = np.load(path, mmap_mode="r", allow_pickle=False)
        if planes.dtype == np.uint8 and planes.ndim == 3 and len(planes) == expected:
            return planes
    return None


# ---- decoding


def _write(file: IO[bytes], listing: _Listing, request: Request) -> None:
    """Writes the planes of all images, then the masks, as .npy; raises ValueError for files without valid ones.

    One file holds both, so that no pair can be torn.
    """
    image_module()
    with ThreadPoolExecutor(get_num_threads()) as pool:
        size = request.size or _common_size(listing, pool)
        shape = (len(listing.files) * request.channels + len(listing.masks), *size)
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})

        def pixels_of(name: str) -> NDArray[np.uint8] | str:
            return tried_path(listing.folder / name, request)

        def labels_of(mask: str) -> NDArray[np.uint8] | str:
            path, name = Path(listing.mask_folder or "", mask), image_of[mask]
            sizes = size_of(listing.folder / name), size_of(path)
            if None not in sizes and sizes[0] != sizes[1]:
                return f"expected {_by(sizes[0])} pixels, as {name!r}, got {_by(sizes[1])}"
            return tried_path(path, request.of_mask)

        image_of = dict(zip(listing.masks, listing.files, strict=False))
        _write_part(file, size, f"{listing.folder}: expected images", _in_order(pool, pixels_of, listing.files))
        _write_part(file, size, f"{listing.mask_folder}: expected masks", _in_order(pool, labels_of, listing.masks))


def _write_part(
    file: IO[bytes], size: tuple[int, int], expected: str, found: Iterator[tuple[str, NDArray[np.uint8] | str]]
) -> None:
    bad: list[str] = []
    for name, pixels in found:
        if isinstance(pixels, str):
            bad.append(f"{name!r} ({pixels})")
        elif pixels.shape[-2:] != size:
            bad.append(f"{name!r} (expected {_by(size)} pixels, got {_by(pixels.shape[-2:])})")
        elif not bad:
            file.write(pixels.tobytes())
    if bad:
        raise ValueError(f"{expected}, got {_some(bad)}{remedy(_some(bad))}")


def _by(size: tuple[int, ...] | None) -> str:
    return "x".join(map(str, size or ()))


def _in_order(pool: ThreadPoolExecutor, read: Callable[[str], T], names: list[str]) -> Iterator[tuple[str, T]]:
    """Yields each name and what `read` returns for it; only AT_A_TIME results are in memory."""
    for start in range(0, len(names), AT_A_TIME):
        some = names[start : start + AT_A_TIME]
        yield from zip(some, pool.map(read, some), strict=True)


def _common_size(listing: _Listing, pool: ThreadPoolExecutor) -> tuple[int, int]:
    """Returns the size of all images, from the heads of their files; raises ValueError if there are several."""
    sizes, first = Counter[tuple[int, int]](), dict[tuple[int, int], str]()
    for name, size in _in_order(pool, lambda name: size_of(listing.folder / name), listing.files):
        if size is not None:  # else the error comes with those of decoding
            sizes[size] += 1
            first.setdefault(size, name)
    if len(sizes) > 1:
        found = [f"{_by(size)} ({count}, such as {first[size]!r})" for size, count in sizes.most_common()]
        raise ValueError(f"size: expected a size, as the images have several: {_some(found)}")
    return next(iter(sizes), (1, 1))
