"""Decoding of one image file: its pixels, or the labels of a mask, both scaled and turned in the same way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.optional import needs
from minidl.utils.validation import check_bool, check_choice, check_pair

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # theirs in Pillow, which knows others that run programs
DEEP = ("I", "F")  # first letters of Pillow's modes with more than 8 bits, which it would clip
DEEP_RAW = re.compile(r";16[BLNS]")  # its names of 16 bits a channel in a file, of which it keeps 8; "BGR;16" has 5
SCALED_RAW = re.compile(r"L;[24]")  # its names of 2 and 4 bits, which it multiplies until white is 255
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)  # of EXIF: values that swap height and width
TIFF_WIDTH, TIFF_HEIGHT = 256, 257  # tags
MAX_SIDE = 2**16  # pixels
TOO_DEEP = "expected 8 bits a channel"
NO_LABELS = "expected one label a pixel"
REMEDIES = {
    TOO_DEEP: (
        "; read more bits by np.asarray(PIL.Image.open(file)) if grey, or by tifffile.imread(file), scale them to "
        "uint8 or float32, and transpose them to (n, channels, height, width)"
    ),
    NO_LABELS: (
        "; make labels first, by image.convert('L') of grey values in RGB or by (np.asarray(image) == color).all(2) "
        "of a color, and save them as PNG by Image.fromarray(labels.astype('uint8'))"
    ),
}


@dataclass(frozen=True)
class Request:
    """What to make of each image."""

    size: tuple[int, int] | None  # (height, width)
    channels: int
    resize: str
    mask: bool = field(default=False, repr=False)  # labels (height, width) instead of pixels

    @classmethod
    def of(cls, size: Any, channels: Any, resize: Any, mask: Any = False) -> Request:
        """Checks the arguments; raises TypeError or ValueError that names the invalid one."""
        return cls(
            None if size is None else check_pair("size", size, maximum=MAX_SIDE),
            check_choice("channels", channels, 1, 3),
            check_choice("resize", resize, "crop", "squash"),
            check_bool("mask", mask),
        )

    @property
    def of_mask(self) -> Request:
        """The same for the mask of an image."""
        return replace(self, mask=True)


def image_module() -> Any:
    """Returns Pillow's module Image; raises ImportError with the remedy."""
    with needs("PIL", "reading images"):
        from PIL import Image, ImageOps  # noqa: F401
    return Image


def remedy(reasons: str) -> str:
    """Returns what to do with files that were refused for these reasons."""
    return "".join(text for reason, text in REMEDIES.items() if reason in reasons)


def size_of(path: Path) -> tuple[int, int] | None:
    """Returns the (height, width) of an image as `_pixels` has it; None if it cannot be read."""
    try:
        with image_module().open(path, formats=FORMATS) as image:
            width, height = image.size
            if image.format == "TIFF":  # Pillow has turned the size already, depending on its version
                tags = image.tag_v2
                width, height = tags[TIFF_WIDTH], tags[TIFF_HEIGHT]
            turned = image.getexif().get(ORIENTATION) in TURNED
    except Exception:  # of any type, as in `tried`
        return None
    return (width, height) if turned else (height, width)


def tried_path(path: Path, request: Request) -> NDArray[np.uint8] | str:
    """Returns the pixels or labels of an image file, or why there are none."""
    try:
        with path.open("rb") as file:  # given a path, Pillow maps it, and leaves a TIFF that it maps unrotated
            return tried(file, request)
    except OSError as error:
        return error.strerror or str(error)


def tried(file: IO[bytes], request: Request) -> NDArray[np.uint8] | str:
    """Returns the pixels or labels in an open image file, or why there are none."""
    try:
        with image_module().open(file, formats=FORMATS) as image:
            return _pixels(image, request)
    except Exception as error:  # of the many decoders, which raise various types for a damaged file
        return str(error).removesuffix(f" {file!r}") or type(error).__name__


def _pixels(image: Image, request: Request) -> NDArray[np.uint8]:
    """Returns an image as uint8 (channels, height, width), a mask as (height, width)."""
    from PIL import Image, ImageOps

    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        got = f"got {image.height}x{image.width} (the limit is PIL.Image.MAX_IMAGE_PIXELS)"
        raise ValueError(f"expected at most {limit} pixels, {got}")
    if request.mask:
        image, scaling = _labels(image), Image.Resampling.NEAREST
    else:
        image, scaling = _colors(image, "L" if request.channels == 1 else "RGB"), Image.Resampling.BILINEAR
    if request.size is not None and image.size != request.size[::-1]:
        height, width = request.size
        if request.resize == "crop":
            image = ImageOps.fit(image, (width, height), scaling)
        else:
            image = image.resize((width, height), scaling)
    pixels = np.asarray(image, np.uint8)
    if request.mask:
        return pixels
    return pixels[np.newaxis] if request.channels == 1 else pixels.transpose(2, 0, 1)


def _colors(image: Image, mode: str) -> Image:
    """Returns an image in this mode, turned as its EXIF says; raises ValueError for more than 8 bits a channel."""
    from PIL import ImageOps

    if image.mode.startswith(DEEP):
        raise ValueError(f"{TOO_DEEP}, got mode {image.mode}")
    if _is_cut(image):
        raise ValueError(f"{TOO_DEEP}, got more in mode {image.mode}")
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "P":
        image = image.convert("RGBA")  # Pillow warns of transparent palettes otherwise
    return image if image.mode == mode else image.convert(mode)  # which copies it


def _labels(image: Image) -> Image:
    """Returns a mask whose values are labels, turned as its EXIF says; raises ValueError for one without them."""
    from PIL import Image, ImageOps

    is_deep = image.mode.startswith("I")
    if not is_deep and image.mode not in ("1", "L", "P"):
        raise ValueError(f"{NO_LABELS}, got mode {image.mode}")
    if _is_scaled(image):
        raise ValueError("expected labels of 8 bits, got other ones, which Pillow scales to 255: save them as PNG")
    ImageOps.exif_transpose(image, in_place=True)
    if is_deep:
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 255:
            raise ValueError(f"expected labels from 0 to 255, got {values.min()} to {values.max()}")
        image = Image.fromarray(values.astype(np.uint8))
    return image


def _decoders(image: Image) -> list[tuple[str, tuple[Any, ...]]]:
    """Returns name and arguments of how Pillow is going to decode the parts of an image."""
    tiles = getattr(image, "tile", ())
    return [(tile[0], tile[3] if isinstance(tile[3], tuple) else (tile[3],)) for tile in tiles]


def _has(args: tuple[Any, ...], raw: re.Pattern[str]) -> bool:
    return any(isinstance(arg, str) and raw.search(arg) for arg in args)


def _is_cut(image: Image) -> bool:
    """True if Pillow keeps the high bits of the file's channels only."""
    return any(_largest(*one) > 255 or _has(one[1], DEEP_RAW) for one in _decoders(image))


def _is_scaled(image: Image) -> bool:
    """True if Pillow multiplies the values of a grey image."""
    return any(_largest(*one) != 255 or _has(one[1], SCALED_RAW) for one in _decoders(image))


def _largest(decoder: str, args: tuple[Any, ...]) -> int:
    """Returns the largest value in a file of PPM, which Pillow scales to 255; 255 for others."""
    return args[-1] if decoder.startswith("ppm") and isinstance(args[-1], int) else 255
