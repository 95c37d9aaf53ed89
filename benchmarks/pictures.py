"""Pictures to calibrate trained models with, and others to judge with.

Photographs are those that scikit-image and scikit-learn bring; text is drawn on pieces of them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator

    Array = np.ndarray[Any, Any]

_FOLDERS = {"skimage": "data", "sklearn": "datasets/images"}
_LEAST = 224
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:-"
_MEAN = np.array([0.485, 0.456, 0.406])
_DEVIATION = np.array([0.229, 0.224, 0.225])


def photographs() -> list[Image.Image]:
    """Give the photographs of the packages that are installed, in the order of their names."""
    found = []
    for path in sorted(_paths(), key=lambda path: path.name):
        image = Image.open(path).convert("RGB")
        if min(image.size) >= _LEAST:
            found.append(image)
    return found


def _paths() -> Iterator[Path]:
    for package, folder in _FOLDERS.items():
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        for path in (Path(spec.origin).parent / folder).iterdir():
            if path.suffix in {".png", ".jpg"}:
                yield path


def objects(photos: list[Image.Image], count: int, seed: int) -> list[Array]:
    """Give parts of photographs, the longer side 224, on black, normalised as for ImageNet.

    Each is [1, 3, 224, 224]; the first ones are the photographs as they are.
    """
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        photo = photos[index % len(photos)]
        if index >= len(photos):
            shape = [int(extent * random.uniform(0.6, 1.0)) for extent in photo.size]
            photo = _piece(photos, index, *shape, random)
        photo = photo.resize(_within(photo.size, 224))
        square = Image.new("RGB", (224, 224))
        square.paste(photo, ((224 - photo.size[0]) // 2, (224 - photo.size[1]) // 2))
        found.append(_planes((_floats(square) - _MEAN) / _DEVIATION))
    return found


def lines(photos: list[Image.Image], count: int, seed: int) -> list[Array]:
    """Give lines of drawn text, [1, 3, 48, 320], from -1 to 1."""
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        image = _faded(_piece(photos, index, 320, 48, random))
        _write(image, (4, 6), _words(24, random), 30, random)
        found.append(_planes(_floats(image) * 2 - 1))
    return found


def pages(photos: list[Image.Image], count: int, seed: int) -> list[Array]:
    """Give photographs with some lines of drawn text, [1, 3, 320, 320], from -1 to 1."""
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        image = _piece(photos, index, 320, 320, random)
        for row in range(10, 300, int(random.integers(40, 90))):
            place = (int(random.integers(0, 120)), row)
            _write(image, place, _words(16, random), int(random.integers(14, 34)), random)
        found.append(_planes(_floats(image) * 2 - 1))
    return found


def _piece(
    photos: list[Image.Image], index: int, width: int, height: int, random: Generator
) -> Image.Image:
    """Cut a random piece out of a photograph, as large as fits or down to half of that."""
    photo = photos[index % len(photos)]
    largest = min(photo.size[0] / width, photo.size[1] / height)
    factor = largest * random.uniform(0.5, 1.0)
    wide, high = int(width * factor), int(height * factor)
    left = int(random.integers(0, photo.size[0] - wide + 1))
    top = int(random.integers(0, photo.size[1] - high + 1))
    return photo.resize((width, height), box=(left, top, left + wide, top + high))


def _within(size: tuple[int, int], most: int) -> tuple[int, int]:
    factor = most / max(size)
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _faded(image: Image.Image) -> Image.Image:
    return image.point(lambda value: 160 + value // 3)


def _words(length: int, random: Generator) -> str:
    letters = random.choice(list(_LETTERS), length)
    letters[random.random(length) < 1 / 6] = " "
    return "".join(letters)


def _write(
    image: Image.Image, place: tuple[int, int], text: str, size: int, random: Generator
) -> None:
    dark = tuple(int(value) for value in random.integers(0, 90, 3))
    ImageDraw.Draw(image).text(place, text, fill=dark, font=ImageFont.load_default(size))


def _floats(image: Image.Image) -> Array:
    return np.asarray(image, np.float32) / 255


def _planes(image: Array) -> Array:
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)
