"""`paddle.utils` of release 1.8."""

import numpy as np

from fluid.compat.paddle.utils import image_util


def test_images_are_cropped_in_the_middle_padded_and_mirrored():
    image = np.arange(32.0).reshape(2, 4, 4)
    np.testing.assert_array_equal(image_util.crop_img(image, 2), image[:, 1:3, 1:3])
    wide = image_util.crop_img(image[0], 6, color=False)
    np.testing.assert_array_equal(wide, np.pad(image[0], 1))
    ten = image_util.oversample([image.transpose(1, 2, 0)], (2, 2))
    assert ten.shape == (10, 2, 2, 2) and ten.dtype == np.float32
    np.testing.assert_array_equal(ten[4], image[:, 1:3, 1:3].transpose(1, 2, 0))
    np.testing.assert_array_equal(ten[9], ten[4][:, ::-1])


def test_random_crops_lie_inside_the_image():
    image = np.arange(1.0, 10).reshape(1, 3, 3)
    crop = image_util.preprocess_img(image, np.float32(1), 2, is_train=True).reshape(2, 2)
    assert abs(crop[0, 1] - crop[0, 0]) == 1 and crop[1, 0] - crop[0, 0] == 3


def test_an_image_transformer_applies_its_steps_in_order():
    change = image_util.ImageTransformer([2, 0, 1], [1, 0], np.array([1.0, 2.0]), is_color=False)
    image = np.arange(8.0).reshape(2, 2, 2)
    expected = image.transpose(2, 0, 1)[::-1] - np.array([1.0, 2.0]).reshape(2, 1, 1)
    np.testing.assert_array_equal(change.transformer(image), expected)
