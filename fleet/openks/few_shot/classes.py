"""One class of a few-shot data set: a folder of images, sampled at random."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from compiler.ir.types import Array
from fleet.openks.few_shot.images import ImageDataError, read_image

__all__ = ["ImageClass", "Open_KS_Character", "Open_KS_ImageNet"]


class ImageClass:
    """A folder whose images all belong to one class.

    `generator` chooses the samples; by default, a new generator with fresh entropy. Decoded images
    are cached as uint8. Raises ImageDataError if it is not a folder.
    """

    suffix: ClassVar[str]
    shape: ClassVar[tuple[int, ...]]

    def __init__(self, dir_path: str | Path, generator: np.random.Generator | None = None) -> None:
        self.dir_path = Path(dir_path)
        self.generator = generator or np.random.default_rng()
        self._cache: dict[str, Array] = {}
        if not self.dir_path.is_dir():
            raise ImageDataError(f"{dir_path}: there is no such folder of images")

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.dir_path.name

    def files(self) -> list[str]:
        """The names of the class's image files, sorted."""
        return sorted(p.name for p in self.dir_path.glob(f"*{self.suffix}") if p.is_file())

    def sample(self, num_images: int, generator: np.random.Generator | None = None) -> Array:
        """Read `num_images` different images chosen at random: float32 [num_images, *shape].

        Raises ImageDataError if the folder has fewer, or one cannot be read.
        """
        files = self.files()
        if not 1 <= num_images <= len(files):
            have = f"{len(files)} *{self.suffix} files"
            raise ImageDataError(f"{self.dir_path} has {have}, but {num_images} are to be sampled")
        order: list[int] = (generator or self.generator).permutation(len(files)).tolist()
        return np.stack([self._read_image(files[index]) for index in order[:num_images]])

    def _read_image(self, name: str) -> Array:
        """Read one image of the folder: float32 of `shape`. Raises ImageDataError."""
        if name not in self._cache:
            self._cache[name] = self._decode(self.dir_path / name)
        return self._scaled(self._cache[name])

    def _decode(self, path: Path) -> Array:
        raise NotImplementedError

    def _scaled(self, image: Array) -> Array:
        raise NotImplementedError


class Open_KS_ImageNet(ImageClass):
    """A class of colour photographs: `*.jpg`, each 84 × 84 × 3, float32 in [0, 1]."""

    suffix = ".jpg"
    shape = (84, 84, 3)

    def _decode(self, path: Path) -> Array:
        return read_image(path, 84, "RGB")

    def _scaled(self, image: Array) -> Array:
        return image.astype(np.float32) / 255


class Open_KS_Character(ImageClass):
    """A class of handwritten characters: `*.png`, each 28 × 28, float32 in [0, 1].

    `rotation` rotates every image counter-clockwise by 0, 90, 180 or 270 degrees, which makes it a
    new class. Raises ImageDataError for another angle.
    """

    suffix = ".png"
    shape = (28, 28)

    def __init__(
        self, dir_path: str | Path, rotation: int = 0, generator: np.random.Generator | None = None
    ) -> None:
        super().__init__(dir_path, generator)
        if rotation not in (0, 90, 180, 270):
            raise ImageDataError(f"rotation is {rotation!r}, expected 0, 90, 180 or 270 degrees")
        self.rotation = rotation

    def _decode(self, path: Path) -> Array:
        return read_image(path, 28, "L", self.rotation)

    def _scaled(self, image: Array) -> Array:
        return image.astype(np.float32) / 255
