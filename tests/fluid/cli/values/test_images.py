"""Images as feeds: sizes, the order of axes and channels, and scaling."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.cli import main as cli
from fluid.cli.model import CommandError
from fluid.cli.values.images import ImageOptions, accepts_images, read_images

GOLDEN = Path(__file__).parents[3] / "golden" / "inference"
AS_THEY_ARE = ImageOptions(scale=1.0)
pytestmark = pytest.mark.usefixtures("fresh_programs")


@pytest.fixture
def pillow() -> Any:
    return pytest.importorskip("PIL.Image")


def pixels(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, 256, (height, width, 3), np.uint8)


@pytest.fixture
def save(pillow: Any, tmp_path: Path) -> Any:
    """Write pixels to a picture file; its path."""

    def write(array: np.ndarray, name: str = "a.png") -> Path:
        pillow.fromarray(array).save(tmp_path / name)
        return tmp_path / name

    return write


def feed(*shape: int, dtype: str = "float32") -> Any:
    return fluid.data(fluid.unique_name.generate("img"), list(shape), dtype)


def test_colours_first(save):
    array = pixels(4, 6)
    result = read_images([save(array)], feed(-1, 3, 4, 6), AS_THEY_ARE)
    np.testing.assert_array_equal(result, array.transpose(2, 0, 1)[np.newaxis])
    assert result.dtype == np.float32
    assert result.flags.c_contiguous


def test_colours_last(save):
    array = pixels(4, 6)
    result = read_images([save(array)], feed(-1, 4, 6, 3), AS_THEY_ARE)
    np.testing.assert_array_equal(result, array[np.newaxis])


def test_blue_first(save):
    array = pixels(4, 6)
    options = ImageOptions(scale=1.0, bgr=True)
    result = read_images([save(array)], feed(-1, 3, 4, 6), options)
    np.testing.assert_array_equal(result[0], array[..., ::-1].transpose(2, 0, 1))


def test_scale_mean_and_std(save):
    array = pixels(4, 6)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    actual = read_images([save(array)], feed(-1, 3, 4, 6), ImageOptions(mean=mean, std=std))
    expected = (array / 255 - mean) / std
    np.testing.assert_allclose(actual[0], expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-6)


def test_bytes_stay_bytes(save):
    array = pixels(4, 6)
    result = read_images([save(array)], feed(-1, 3, 4, 6, dtype="uint8"), ImageOptions())
    np.testing.assert_array_equal(result[0], array.transpose(2, 0, 1))


def test_grey(save, pillow):
    path = save(pixels(4, 6))
    result = read_images([path], feed(-1, 1, 4, 6), AS_THEY_ARE)
    np.testing.assert_array_equal(result[0, 0], np.asarray(pillow.open(path).convert("L")))


def test_images_are_stretched_to_the_models_size(save):
    array = np.zeros((8, 8, 3), np.uint8)
    array[:, 4:] = 200
    result = read_images([save(array)], feed(-1, 3, 4, 2), AS_THEY_ARE)
    assert result.shape == (1, 3, 4, 2)
    assert result[0, 0, 0, 0] < 100 < result[0, 0, 0, 1]


def test_the_middle_after_the_shorter_side_was_resized(save):
    array = pixels(4, 8)
    options = ImageOptions(scale=1.0, short=4)
    result = read_images([save(array)], feed(-1, 3, 4, 4), options)
    np.testing.assert_array_equal(result[0], array[:, 2:6].transpose(2, 0, 1))
    with pytest.raises(CommandError, match="is too small for a crop of 4x4"):
        read_images([save(array)], feed(-1, 3, 4, 4), ImageOptions(short=3))


def test_models_that_take_any_size(save):
    path, var = save(pixels(5, 7)), feed(-1, 3, -1, -1)
    assert read_images([path], var, AS_THEY_ARE).shape == (1, 3, 5, 7)
    assert read_images([path], var, ImageOptions(size=(2, 3))).shape == (1, 3, 2, 3)
    other = save(pixels(4, 4), "b.png")
    with pytest.raises(CommandError, match="pass --size HEIGHTxWIDTH"):
        read_images([path, other], var, AS_THEY_ARE)


def test_exif_rotation_is_applied(save, pillow, tmp_path):
    picture = pillow.fromarray(pixels(4, 8))
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "turned.png", exif=exif)
    result = read_images([tmp_path / "turned.png"], feed(-1, 3, -1, -1), AS_THEY_ARE)
    assert result.shape == (1, 3, 8, 4)


@pytest.mark.parametrize(
    ("shape", "dtype", "takes"),
    [
        ((-1, 3, 8, 8), "float32", True),
        ((-1, -1, -1, 1), "uint8", True),
        ((-1, 4, 8, 8), "float32", False),
        ((-1, 3, 8), "float32", False),
        ((-1, 3, 8, 8), "int64", False),
    ],
)
def test_which_feeds_take_images(shape, dtype, takes):
    assert accepts_images(feed(*shape, dtype=dtype)) is takes


def test_image_errors(save, tmp_path):
    path = save(pixels(4, 4))
    with pytest.raises(CommandError, match=r"does not accept images: it is float32 \[-1, 13\]"):
        read_images([path], feed(-1, 13), AS_THEY_ARE)
    with pytest.raises(CommandError, match="--mean has 2 values for 3 channels"):
        read_images([path], feed(-1, 3, 4, 4), ImageOptions(mean=(1.0, 2.0)))
    for content in (b"", b"words", path.read_bytes()[:60]):
        broken = tmp_path / "broken.png"
        broken.write_bytes(content)
        with pytest.raises(CommandError, match=r"broken\.png is not a readable image"):
            read_images([broken], feed(-1, 3, 4, 4), AS_THEY_ARE)


def test_without_pillow(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(CommandError, match="requires Pillow: pip install pillow"):
        read_images([tmp_path / "a.png"], feed(-1, 3, 4, 4), AS_THEY_ARE)


# ---- on the command line ----


def test_images_are_a_batch(capsys, save, tmp_path):
    for index, height in enumerate((16, 20, 31)):
        save(pixels(height, 16, index), f"{index}.png")
    model = GOLDEN / "resnet_cifar8__separate"
    paths = [argument for i in range(3) for argument in ("--input", str(tmp_path / f"{i}.png"))]
    shown = []
    for given in (paths, ["--input", str(tmp_path)]):
        assert cli.main(["infer", str(model), *given]) == 0
        shown.append(capsys.readouterr().out.splitlines()[:2])
    assert "float32 [3, 3, 16, 16]" in shown[0][0]
    assert shown[0] == shown[1]


def test_a_folder_without_images(capsys, tmp_path):
    model = GOLDEN / "resnet_cifar8__separate"
    assert cli.main(["infer", str(model), "--input", str(tmp_path)]) == 2
    assert "is a folder without images" in capsys.readouterr().err
