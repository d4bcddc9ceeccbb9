"""Few-shot data sets: shapes, ranges, rotations, episodes, and errors of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fleet.openks.few_shot.classes import Open_KS_Character, Open_KS_ImageNet
from fleet.openks.few_shot.datasets import Open_KS_read, Open_KS_Read_Character
from fleet.openks.few_shot.episodes import episode_reader, sample_episode
from fleet.openks.few_shot.images import ImageDataError


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real photographs, cut into pieces: three parts of two classes with six images each."""
    from sklearn.datasets import load_sample_images  # a second to import

    folder = tmp_path_factory.mktemp("photographs")
    for part in ("train", "val", "test"):
        for number, image in enumerate(load_sample_images().images):
            at = folder / part / f"n0000000{number}"
            at.mkdir(parents=True)
            for piece in range(6):
                Image.fromarray(image[60 * piece : 60 * piece + 100, :120]).save(
                    at / f"{piece}.jpg"
                )
    return folder


@pytest.fixture(scope="module")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real handwritten digits as an alphabet of ten characters, eight images each."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("characters")
    digits = load_digits()
    for digit in range(10):
        at = folder / "Digits" / f"character{digit:02}"
        at.mkdir(parents=True)
        for number, image in enumerate(digits.images[digits.target == digit][:8]):
            Image.fromarray((image * 15).astype(np.uint8)).save(at / f"{number}.png")
    return folder


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_photographs_are_84_by_84_in_colour_between_0_and_1(photographs: Path) -> None:
    train, val, test = Open_KS_read.read_dataset(photographs, random())
    assert [len(each) for each in (train, val, test)] == [2, 2, 2]
    images = train[0].sample(4)
    assert images.shape == (4, 84, 84, 3) and images.dtype == np.float32
    assert 0 <= images.min() < 0.5 < images.max() <= 1
    one = train[0]._read_image("0.jpg")
    assert one.shape == (84, 84, 3) and 0 <= one.min() < one.max() <= 1


def test_characters_rotate_counter_clockwise(characters: Path) -> None:
    folder = characters / "Digits" / "character07"
    upright = Open_KS_Character(folder)._read_image("0.png")
    assert upright.shape == (28, 28) and upright.dtype == np.float32
    assert upright.min() == 0 and 0.5 < upright.max() <= 1
    for turns, rotation in enumerate((0, 90, 180, 270)):
        rotated = Open_KS_Character(folder, rotation)._read_image("0.png")
        np.testing.assert_array_equal(rotated, np.rot90(upright, turns))


def test_samples_repeat_for_a_seed_and_have_no_image_twice(characters: Path) -> None:
    folder = characters / "Digits" / "character03"
    first = Open_KS_Character(folder, generator=random(5)).sample(8)
    again = Open_KS_Character(folder, generator=random(5)).sample(8)
    other = Open_KS_Character(folder, generator=random(6)).sample(8)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({image.tobytes() for image in first}) == 8


def test_a_file_is_read_once(characters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = Open_KS_Character(characters / "Digits" / "character01")
    first = result._read_image("0.png")
    monkeypatch.setattr("fleet.openks.few_shot.classes.read_image", None)
    np.testing.assert_array_equal(result._read_image("0.png"), first)


def test_characters_are_split_and_augmented(characters: Path) -> None:
    result = Open_KS_Read_Character.read_dataset(characters)
    assert [each.name for each in result] == [f"character{n:02}" for n in range(10)]
    train, rest = Open_KS_Read_Character.split_dataset(result, 7, random())
    assert len(train) == 7 and {*train, *rest} == {*result}
    augmented = list(Open_KS_Read_Character.augment_dataset(train))
    assert len(augmented) == 28 and {each.rotation for each in augmented} == {0, 90, 180, 270}


def test_support_and_query_of_an_episode_have_no_image_in_common(characters: Path) -> None:
    classes = Open_KS_Read_Character.read_dataset(characters)
    episode = sample_episode(classes, ways=5, shots=3, queries=4, generator=random(1))
    assert episode.support_images.shape == (15, 28, 28)
    assert episode.query_images.shape == (20, 28, 28)
    assert episode.support_labels[:, 0].tolist() == [n for n in range(5) for _ in range(3)]
    assert episode.query_labels.dtype == np.int64 and episode.query_labels.shape == (20, 1)
    assert len(set(episode.classes)) == 5
    support = {image.tobytes() for image in episode.support_images}
    assert support.isdisjoint(image.tobytes() for image in episode.query_images)


def test_a_reader_has_the_same_episodes_for_a_seed(characters: Path) -> None:
    classes = Open_KS_Read_Character.read_dataset(characters)
    read = episode_reader(classes, 2, 1, 1, episodes=3, seed=4)
    for first, again in zip(read(), read(), strict=True):
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)


# ---- what is wrong ----


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(ImageDataError, match="no such folder"):
        Open_KS_ImageNet(tmp_path / "none")
    with pytest.raises(ImageDataError, match=r"has no class: expected folders such as n01532829"):
        Open_KS_read._read_classes(tmp_path)
    with pytest.raises(ImageDataError, match=r"train: there is no such folder"):
        Open_KS_read.read_dataset(tmp_path)
    with pytest.raises(ImageDataError, match=r"has 0 \*\.jpg files, but 1 are to be sampled"):
        Open_KS_ImageNet(tmp_path).sample(1)
    with pytest.raises(ImageDataError, match="expected ALPHABET/character01"):
        Open_KS_Read_Character.read_dataset(tmp_path)


def test_too_few_images_and_classes(characters: Path) -> None:
    classes = Open_KS_Read_Character.read_dataset(characters)
    with pytest.raises(ImageDataError, match=r"has 8 \*\.png files, but 9 are to be sampled"):
        sample_episode(classes, 2, 5, 4)
    with pytest.raises(ImageDataError, match="of 11 classes, but the data set has 10"):
        sample_episode(classes, 11, 1)
    with pytest.raises(ImageDataError, match="rotation is 45"):
        Open_KS_Character(classes[0].dir_path, 45)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    noise = random().integers(0, 256, (64, 64), np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.png")
    data = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[:900])
    (tmp_path / "text.png").write_text("no image")
    for name in ("cut.png", "text.png"):
        with pytest.raises(ImageDataError, match=f"{name}: not an image that can be read"):
            Open_KS_Character(tmp_path)._read_image(name)
    with pytest.raises(ImageDataError, match=r"none\.png: there is no such file"):
        Open_KS_Character(tmp_path)._read_image("none.png")


def test_a_huge_image_is_rejected_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (9000, 9000)).save(tmp_path / "huge.png")
    with pytest.raises(ImageDataError, match="9000 × 9000 pixels, expected at most"):
        Open_KS_Character(tmp_path)._read_image("huge.png")
