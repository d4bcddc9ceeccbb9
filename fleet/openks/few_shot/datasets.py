"""Finds the classes of a few-shot data set below a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fleet.openks.few_shot.classes import Open_KS_Character, Open_KS_ImageNet
from fleet.openks.few_shot.images import ImageDataError

__all__ = ["Open_KS_Read_Character", "Open_KS_read"]

ROTATIONS = (0, 90, 180, 270)
"""Rotations in degrees that make further classes of characters."""


class Open_KS_read:
    """Reads data sets of photographs: a folder with `train`, `val` and `test`, one folder per
    class.
    """

    @staticmethod
    def read_dataset(
        data_dir: str | Path, generator: np.random.Generator | None = None
    ) -> tuple[list[Open_KS_ImageNet], list[Open_KS_ImageNet], list[Open_KS_ImageNet]]:
        """The classes for training, for validation and for testing.

        Raises ImageDataError if one of the three folders is missing or has no class.
        """
        parts = (Path(data_dir) / part for part in ("train", "val", "test"))
        train, val, test = (Open_KS_read._read_classes(part, generator) for part in parts)
        return train, val, test

    @staticmethod
    def _read_classes(
        dir_path: str | Path, generator: np.random.Generator | None = None
    ) -> list[Open_KS_ImageNet]:
        """A class for each folder whose name starts with `n`, as in WordNet, sorted by name."""
        folders = [folder for folder in _folders(Path(dir_path)) if folder.name.startswith("n")]
        if not folders:
            raise ImageDataError(
                f"{dir_path} has no class: expected folders such as n01532829 (WordNet ids)"
            )
        return [Open_KS_ImageNet(folder, generator) for folder in folders]


class Open_KS_Read_Character:
    """Reads data sets of characters: one folder per alphabet, with one folder per character."""

    @staticmethod
    def read_dataset(
        data_dir: str | Path, generator: np.random.Generator | None = None
    ) -> list[Open_KS_Character]:
        """A class for each `alphabet/character…` folder, sorted, not rotated.

        Raises ImageDataError if there is none.
        """
        alphabets = _folders(Path(data_dir))
        folders = [folder for alphabet in alphabets for folder in _folders(alphabet)]
        characters = [folder for folder in folders if folder.name.startswith("character")]
        if not characters:
            raise ImageDataError(f"{data_dir} has no class: expected ALPHABET/character01 folders")
        return [Open_KS_Character(folder, 0, generator) for folder in characters]

    @staticmethod
    def split_dataset(
        dataset: Sequence[Open_KS_Character],
        num_train: int = 1200,
        generator: np.random.Generator | None = None,
    ) -> tuple[list[Open_KS_Character], list[Open_KS_Character]]:
        """Shuffle the classes and divide them: the first `num_train`, and the others."""
        order: list[int] = (generator or np.random.default_rng()).permutation(len(dataset)).tolist()
        shuffled = [dataset[index] for index in order]
        return shuffled[:num_train], shuffled[num_train:]

    @staticmethod
    def augment_dataset(dataset: Sequence[Open_KS_Character]) -> Iterator[Open_KS_Character]:
        """Each class in four rotations, which count as separate classes."""
        for character in dataset:
            for rotation in ROTATIONS:
                yield Open_KS_Character(character.dir_path, rotation, character.generator)


def _folders(path: Path) -> list[Path]:
    """The folders in a folder, sorted by name. Raises ImageDataError if it is missing."""
    if not path.is_dir():
        raise ImageDataError(f"{path}: there is no such folder")
    return sorted(entry for entry in path.iterdir() if entry.is_dir())
