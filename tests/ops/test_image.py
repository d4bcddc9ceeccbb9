"""Errors of image ops, and deliberate differences from the reference."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from compiler.errors import BadAttribute, CompileError, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from tests.ops.samples import numbers
from tests.ops.samples.sequence import lod


def types(**shapes: tuple[Any, ...]) -> dict[str, TensorType]:
    """Return types of float32 by slot."""
    return {slot: TensorType(DType.FP32, shape) for slot, shape in shapes.items()}


IMAGES = (2, 4, 6, 8)
ONE = {"kernel_sizes": [2, 2], "strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1]}
REFUSALS: list[tuple[str, Mapping[str, Any], Mapping[str, Any], type[CompileError], str]] = [
    ("layer_norm", {"X": (3, 4)}, {"begin_norm_axis": 2}, BadAttribute, "expected an axis of X"),
    ("layer_norm", {"X": (3, 4), "Scale": (3,)}, {}, ShapeError, "a row has 4 elements"),
    ("instance_norm", {"X": (3,)}, {}, ShapeError, "with a batch and channels"),
    ("group_norm", {"X": IMAGES}, {"groups": 5}, BadAttribute, "expected 1 to 4"),
    ("group_norm", {"X": IMAGES, "Bias": (3,)}, {}, ShapeError, "there are 4 channels"),
    ("lrn", {"X": IMAGES}, {"n": 4}, BadAttribute, "expected an odd number"),
    ("lrn", {"X": (2, 4)}, {}, ShapeError, "expected 4 axes"),
    ("data_norm", dict.fromkeys(("X", "BatchSize", "BatchSum", "BatchSquareSum"), (3,)), {}, ShapeError, "features"),
    ("spectral_norm", {"Weight": (3, 4), "U": (3,), "V": (4,)}, {"dim": 2}, BadAttribute, "dim is 2"),
    ("spectral_norm", {"Weight": (3, 4), "U": (4,), "V": (4,)}, {}, ShapeError, "one shape"),
    ("conv3d", {"Input": IMAGES, "Filter": (2, 4, 1, 1)}, {}, ShapeError, "expected 5 axes"),
    ("conv2d_transpose", {"Input": IMAGES, "Filter": (3, 2, 3, 3)}, {}, ShapeError, "4 channels"),
    ("conv2d_transpose", {"Input": IMAGES, "Filter": (4, 2, 3, 3)}, {"strides": [2, 2], "output_size": [13, 19]}, ShapeError, "expected 17 to 18 instead of 19"),
    ("conv2d_transpose", {"Input": IMAGES, "Filter": (4, 2, 3, 3)}, {"output_size": [13]}, BadAttribute, "expected 2 sizes or none"),
    ("deformable_conv_v1", {"Input": IMAGES, "Offset": (2, 9, 4, 6), "Filter": (2, 4, 3, 3)}, {}, ShapeError, r"expected f32\[2, 18, 4, 6\]"),
    ("max_pool2d_with_index", {"X": IMAGES}, {"ksize": [2]}, BadAttribute, "expected 2 sizes"),
    ("spp", {"X": IMAGES}, {"pyramid_height": 1, "pooling_type": "sum"}, BadAttribute, "'sum'"),
    ("bilinear_interp", {"X": IMAGES}, {}, BadAttribute, "expected sizes of at least 1, or a scale"),
    ("bilinear_interp", {"X": (2, 3)}, {"out_h": 1}, ShapeError, "expected 3 to 5 axes"),
    ("trilinear_interp", {"X": IMAGES}, {"out_d": 1}, BadAttribute, "interp_method is 'trilinear'"),
    ("bilinear_interp", {"X": IMAGES}, {"interp_method": "cubic"}, BadAttribute, "expected bilinear, nearest or bicubic"),
    ("nearest_interp", {"X": (1, 2, 3, 4, 5)}, {}, BadAttribute, "expected trilinear for images of 3 axes"),
    ("nearest_interp", {"X": IMAGES}, {"align_mode": 2}, BadAttribute, "expected 0 or 1"),
    ("pixel_shuffle", {"X": IMAGES}, {"upscale_factor": 3}, ShapeError, "4 channels cannot be divided by 9"),
    ("shuffle_channel", {"X": IMAGES}, {"group": 0}, BadAttribute, "at least 1"),
    ("space_to_depth", {"X": IMAGES}, {"blocksize": 4}, ShapeError, "6 rows cannot be divided by 4"),
    ("temporal_shift", {"X": IMAGES}, {"seg_num": 2, "shift_ratio": 0.5}, BadAttribute, "0.5"),
    ("unfold", {"X": IMAGES}, {**ONE, "kernel_sizes": [2]}, BadAttribute, "expected 2 sizes"),
    ("unfold", {"X": IMAGES}, {**ONE, "kernel_sizes": [7, 1]}, ShapeError, "does not fit"),
    ("affine_grid", {"Theta": (2, 3, 3)}, {"output_shape": [2, 1, 3, 4]}, ShapeError, r"\[N, 2, 3\]"),
    ("affine_grid", {"Theta": (2, 2, 3)}, {}, BadAttribute, "output_shape is"),
    ("grid_sampler", {"X": IMAGES, "Grid": (2, 3, 3, 3)}, {}, ShapeError, "expected a grid"),
    ("grid_sampler", {"X": IMAGES, "Grid": (2, 3, 3, 2)}, {"mode": "nearest"}, BadAttribute, "'nearest'"),
    ("similarity_focus", {"X": IMAGES}, {"axis": 1, "indexes": [4]}, BadAttribute, "slices of axis 1"),
    ("roi_align", {"X": IMAGES, "ROIs": (3, 5)}, {}, ShapeError, r"expected boxes \[R, 4\]"),
    ("psroi_pool", {"X": IMAGES, "ROIs": (3, 4)}, {"output_channels": 3}, ShapeError, "expected 3 channels"),
    ("box_coder", {"PriorBox": (3, 4), "TargetBox": (3, 4)}, {"code_type": "decode_center_size"}, ShapeError, "expected 3 axes"),
    ("iou_similarity", {"X": (3, 4), "Y": (3, 5)}, {}, ShapeError, "expected boxes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shapes", "attrs", "error", "message"),
    REFUSALS,
    ids=[f"{refusal[0]}-{refusal[4]}" for refusal in REFUSALS],
)
def test_image_op_shape_errors(
    kind: str, shapes: Any, attrs: Any, error: type[CompileError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        find(kind)(attrs).infer_types(types(**shapes))
    assert str(caught.value).startswith(kind)


def test_a_size_by_name_is_scaled_exactly() -> None:
    """A scale with a small denominator keeps an unknown size an expression, others do not."""
    height = Dim.named("H")
    shapes = types(X=(2, 3, height, 5))
    result = find("bilinear_interp")({"scale": 1.5}).infer_types(shapes)
    assert result["Out"].shape == (2, 3, height * 3 // 2, 7)
    assert find("bilinear_interp")({"scale": 1.7}).infer_types(shapes)["Out"].shape[2] is UNKNOWN


@pytest.mark.parametrize(
    "sizes",
    [
        {"OutSize": np.array([2, 0], np.int32)},
        {"OutSize": np.array([3], np.int32)},
        {"SizeTensor": [np.array([-1], np.int32), np.array([2], np.int32)]},
        {"Scale": np.array([0.1], np.float32)},
    ],
)
def test_images_are_resized_to_positive_sizes_only(sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected sizes of at least 1"):
        find("bilinear_interp")({}).evaluate({"X": numbers(1, 1, 4, 4), **sizes})


def test_group_norm_without_scale_has_a_true_gradient() -> None:
    """The reference forgets half of the gradient there: that of a constant is 0, here at least."""
    sample = {"X": numbers(2, 4, 3, 2)}
    op = find("group_norm")({"groups": 2})
    created = op.evaluate(sample)
    ones = np.ones_like(created["Y"])
    result = find("group_norm_grad")({"groups": 2}).evaluate({**created, "Y@GRAD": ones})
    np.testing.assert_allclose(result["X@GRAD"], 0, atol=1e-5)


def test_spectral_norm_makes_the_largest_singular_value_one() -> None:
    weight = numbers(5, 7)
    start = {"U": numbers(5, seed=1), "V": numbers(7, seed=2)}
    created = find("spectral_norm")({"power_iters": 200}).evaluate({"Weight": weight, **start})
    assert np.linalg.svd(created["Out"])[1][0] == pytest.approx(1, rel=1e-4)


def test_boxes_of_several_images_need_sequences() -> None:
    inputs = {"X": numbers(2, 1, 4, 4), "ROIs": np.array([[0, 0, 2, 2]], np.float32)}
    with pytest.raises(ValueError, match="1 boxes need sequence lengths"):
        find("roi_align")().evaluate(inputs)
    alone = find("roi_align")().evaluate({**inputs, "X": inputs["X"][:1]})["Out"]
    told = find("roi_align")().evaluate({**inputs, "ROIs_lod": lod((1, 0))})["Out"]
    np.testing.assert_array_equal(alone, told)


def test_no_detections_are_one_row() -> None:
    scores = {"Scores": numbers(2, 1, 3, low=0.0), "BBoxes": numbers(2, 3, 4)}
    attrs = {"score_threshold": 2.0, "nms_top_k": -1, "keep_top_k": -1}
    created = find("multiclass_nms")(attrs).evaluate(scores)
    np.testing.assert_array_equal(created["Out"], [[-1]])
    np.testing.assert_array_equal(created["Out_lod"], [[0, 1]])
    assert find("multiclass_nms2")(attrs).evaluate(scores)["Out"].shape == (0, 6)
    polygons = {**scores, "BBoxes": numbers(2, 3, 8)}
    assert find("multiclass_nms2")(attrs).evaluate(polygons)["Out"].shape == (0, 10)


@pytest.mark.parametrize("kind", ["multiclass_nms", "multiclass_nms2"])
def test_quadrangle_nms_keeps_the_better(kind: str) -> None:
    """Two diamonds share most of their area, a third lies apart; scores of two axes take boxes."""
    diamond = np.array([1, 0, 2, 1, 1, 2, 0, 1], np.float32)
    boxes = np.stack([diamond, diamond + 0.1, diamond + 5])[None]
    scores = np.array([[[0.5, 0.9, 0.3]]], np.float32)
    attrs = {"score_threshold": 0.1, "nms_top_k": 9, "keep_top_k": 7, "background_label": -1}
    created = find(kind)(attrs).evaluate({"BBoxes": boxes, "Scores": scores})["Out"]
    np.testing.assert_array_equal(created[:, :2], np.array([[0, 0.9], [0, 0.3]], np.float32))
    np.testing.assert_array_equal(created[:, 2:], boxes[0, 1:])
    rows = types(BBoxes=(3, 1, 8), Scores=(3, 1))
    with pytest.raises(ShapeError, match="expected boxes"):
        find(kind)(attrs).infer_types(rows)


def test_yolo_boxes_of_one_cell_share_the_loss() -> None:
    """Two true boxes in one place and of one anchor add up; the reference forgets the first."""
    head = numbers(1, 7, 2, 2)
    box = np.array([[0.3, 0.3, 0.4, 0.4]], np.float32)
    attrs = {"class_num": 2, "anchors": [10, 13], "anchor_mask": [0], "downsample_ratio": 8}

    def slopes(count: int) -> Any:
        inputs = {
            "X": head,
            "GTBox": np.repeat(box, count, axis=0)[None],
            "GTLabel": np.zeros((1, count), np.int32),
        }
        created = find("yolov3_loss")(attrs).evaluate(inputs)
        arguments = {**inputs, **created, "Loss@GRAD": np.ones(1, np.float32)}
        result = find("yolov3_loss_grad")(attrs).evaluate(arguments)["X@GRAD"]
        return np.delete(result, 4, axis=1)

    np.testing.assert_allclose(slopes(2), 2 * slopes(1), rtol=1e-5)


@pytest.mark.parametrize("kind", ["nearest_interp", "bilinear_interp", "bicubic_interp"])
def test_axes_define_what_is_resampled_and_the_method_how(kind: str) -> None:
    """Each of these ops resamples volumes, and images with any method, as release 1.8.5 does."""
    attrs = {"interp_method": "trilinear", "out_d": 2, "out_h": 3, "out_w": 4}
    volume = {"X": numbers(1, 2, 3, 3, 3)}
    expected = find("trilinear_interp")(attrs).evaluate(volume)["Out"]
    np.testing.assert_array_equal(find(kind)(attrs).evaluate(volume)["Out"], expected)
    attrs["interp_method"] = "bicubic"
    picture = {"X": numbers(1, 2, 3, 3)}
    expected = find("bicubic_interp")(attrs).evaluate(picture)["Out"]
    np.testing.assert_array_equal(find(kind)(attrs).evaluate(picture)["Out"], expected)
    with pytest.raises(BadAttribute, match="interp_method is 'trilinear'"):
        find(kind)({**attrs, "interp_method": "trilinear"}).infer_types(types(X=IMAGES))
