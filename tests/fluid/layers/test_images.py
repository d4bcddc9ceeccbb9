"""Layers of images: appended ops, shapes, errors for bad arguments, results."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Variable, default_main_program, default_startup_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def image(*shape: int, name: str = "image") -> Variable:
    return layers.data(name, list(shape or (3, 8, 8)))


def last() -> Any:
    return default_main_program().global_block().ops[-1]


def ops() -> list[str]:
    return [op.type for op in default_main_program().global_block().ops]


# ---- convolutions and pools


def test_paddings_of_every_spelling() -> None:
    spellings: list[tuple[Any, list[int], str]] = [
        (1, [1, 1], "EXPLICIT"),
        ([1, 2], [1, 2], "EXPLICIT"),
        ([1, 1, 2, 2], [1, 2], "EXPLICIT"),
        ([0, 1, 2, 2], [0, 1, 2, 2], "EXPLICIT"),
        ([[0, 0], [0, 0], [1, 2], [3, 3]], [1, 2, 3, 3], "EXPLICIT"),
        ("same", [0, 0], "SAME"),
    ]
    for padding, wanted, algorithm in spellings:
        layers.conv2d(image(), 2, 3, padding=padding, bias_attr=False)
        assert (last().attr("paddings"), last().attr("padding_algorithm")) == (wanted, algorithm)


def test_volumes() -> None:
    volume = image(2, 4, 6, 8)
    out = layers.conv3d(
        volume, 4, [1, 3, 3], stride=[1, 2, 2], padding=[0, 0, 1, 1, 1, 1], act="relu"
    )
    assert out.shape == (-1, 4, 4, 3, 4)
    assert layers.pool3d(out, 2, "avg", 2).shape == (-1, 4, 2, 1, 2)
    assert layers.conv3d_transpose(volume, 3, filter_size=2, stride=2).shape == (-1, 3, 8, 12, 16)
    assert [op for op in ops() if "conv" in op] == ["conv3d", "conv3d_transpose"]


def test_channels_last_everywhere() -> None:
    pictures = image(8, 8, 3)
    out = layers.conv2d(pictures, 4, 3, data_format="NHWC")
    assert last().attr("axis") == 3
    out = layers.batch_norm(out, data_layout="NHWC")
    out = layers.group_norm(layers.pool2d(out, 2, data_format="NHWC"), 2, data_layout="NHWC")
    out = layers.resize_nearest(out, scale=2, data_format="NHWC")
    assert layers.conv2d_transpose(out, 2, filter_size=3, data_format="NHWC").shape == (
        -1,
        12,
        12,
        2,
    )


def test_transposed_filters_follow_from_the_output() -> None:
    out = layers.conv2d_transpose(image(), 2, output_size=[17, 18], stride=2)
    assert out.shape == (-1, 2, 17, 18)
    filters = default_main_program().all_parameters()[0]
    assert (filters.name, filters.shape) == ("conv2d_transpose_0.w_0", (3, 2, 3, 4))


def test_depthwise_without_cudnn() -> None:
    layers.conv2d(image(), 6, 3, groups=3, use_cudnn=False, bias_attr=False)
    layers.conv2d_transpose(image(), 3, filter_size=3, groups=3, use_cudnn=False, bias_attr=False)
    assert ops() == ["depthwise_conv2d", "depthwise_conv2d_transpose"]


def test_adaptive_pools() -> None:
    out, where = layers.adaptive_pool2d(image(), [2, 3], require_index=True)
    assert (out.shape, where.dtype.name) == ((-1, 3, 2, 3), "INT32")
    assert layers.adaptive_pool3d(image(2, 4, 6, 8, name="volume"), 2, "avg").shape == (
        -1,
        2,
        2,
        2,
        2,
    )
    assert ops() == ["max_pool2d_with_index", "pool3d"]


# ---- normalisation


def test_layer_norm_parameters() -> None:
    layers.layer_norm(image(), scale=False, begin_norm_axis=2)
    assert [(p.name, p.shape) for p in default_main_program().all_parameters()] == [
        ("layer_norm_0.b_0", (64,))
    ]
    with pytest.warns(UserWarning, match="has no scale, so param_attr has no effect"):
        layers.layer_norm(image(), scale=False, param_attr="w")


def test_group_norm_has_parameters_only_if_requested() -> None:
    layers.group_norm(image(), 3)
    assert default_main_program().all_parameters() == []
    layers.group_norm(image(), 3, param_attr="scale", bias_attr="bias")
    assert [param.name for param in default_main_program().all_parameters()] == ["scale", "bias"]


def test_data_norm_keeps_named_sums() -> None:
    layers.data_norm(layers.data("x", [4]), param_attr={"batch_size": 10.0}, name="mine")
    names = ["mine.batch_size", "mine.batch_sum", "mine.batch_square_sum"]
    assert [param.name for param in default_main_program().all_parameters()] == names
    starts = [op.attr("value") for op in default_startup_program().global_block().ops]
    assert sorted(starts) == [0.0, 10.0, 10000.0]


def test_momentum_may_be_a_tensor(exe: fluid.Executor) -> None:
    """The reference drops it by a slip of the pen; here it counts."""
    momentum = layers.fill_constant([1], "float32", 0.25)
    layers.batch_norm(layers.data("x", [1]), momentum=momentum, moving_mean_name="mean")
    exe.run(default_startup_program())
    exe.run(feed={"x": np.array([[2.0], [6.0]], np.float32)})
    mean = np.array(fluid.global_scope().find_var("mean").get_tensor())
    np.testing.assert_allclose(mean, [3.0])


def test_in_place_normalisation_writes_its_input() -> None:
    x = layers.conv2d(image(), 4, 1)
    assert layers.inplace_abn(x, act="elu", act_alpha=0.5) is x
    assert last().attr("activation") == "elu"


# ---- sizes


def test_sizes_by_tensor_are_for_the_data_to_define(exe: fluid.Executor) -> None:
    sizes = layers.data("sizes", [2], append_batch_size=False, dtype="int32")
    one = layers.fill_constant([1], "int32", 5)
    outs = [
        layers.resize_bilinear(image(), sizes),
        layers.resize_nearest(image(), [one, 6]),
        layers.interpolate(image(), scale=layers.fill_constant([1], "float32", 0.5)),
    ]
    assert [out.shape[2:] for out in outs] == [(-1, -1)] * 3
    feed = {"image": np.zeros((2, 3, 8, 8), np.float32), "sizes": np.array([3, 4], np.int32)}
    result = exe.run(feed=feed, fetch_list=outs)
    assert [each.shape[2:] for each in result] == [(3, 4), (5, 6), (4, 4)]


def test_short_side() -> None:
    assert layers.image_resize_short(image(3, 6, 9), 4).shape == (-1, 3, 4, 6)


def test_old_way_to_give_a_size_warns() -> None:
    with pytest.warns(UserWarning, match="instead of actual_shape"):
        layers.resize_bilinear(
            image(), [4, 4], actual_shape=layers.data("size", [2], dtype="int32")
        )


# ---- sequences and boxes


def test_images_become_sequences(exe: fluid.Executor) -> None:
    out = layers.im2sequence(image(1, 3, 4), filter_size=2, stride=[1, 2])
    feed = {"image": np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)}
    (result,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
    assert result.recursive_sequence_lengths() == [[4, 4]]
    np.testing.assert_array_equal(np.array(result)[0], [0, 1, 4, 5])


def test_boxes_of_sequences_are_pooled(exe: fluid.Executor) -> None:
    rois = layers.data("rois", [4], lod_level=1)
    out = layers.roi_pool(image(1, 4, 4), rois, 1, 1)
    boxes = np.array([[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 3, 3]], np.float32)
    feed = {
        "image": np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4),
        "rois": fluid.create_lod_tensor(boxes, [[1, 2]], fluid.CPUPlace()),
    }
    (result,) = exe.run(feed=feed, fetch_list=[out])
    np.testing.assert_array_equal(result.reshape(-1), [5, 31, 31])


def test_detections_come_by_picture(exe: fluid.Executor) -> None:
    boxes, scores = layers.data("boxes", [3, 4]), layers.data("scores", [2, 3])
    out = layers.multiclass_nms(boxes, scores, 0.1, 10, 5)
    box = [[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]
    score = [[[0.9, 0.9, 0.9], [0.5, 0.7, 0.2]], [[0.9, 0.9, 0.9], [0.3, 0.0, 0.0]]]
    feed = {"boxes": np.array([box, box], np.float32), "scores": np.array(score, np.float32)}
    (result,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
    assert result.recursive_sequence_lengths() == [[2, 1]]
    np.testing.assert_allclose(np.array(result)[:, :2], [[1, 0.7], [1, 0.2], [1, 0.3]], rtol=1e-6)


def test_single_shot_detector_learns(exe: fluid.Executor) -> None:
    """A head on one map learns where one true box is."""
    pictures = image(3, 8, 8)
    maps = [layers.conv2d(pictures, 4, 3, stride=2, padding=1)]
    sizes: dict[str, Any] = {"min_sizes": [3.0], "max_sizes": [5.0]}
    loc, conf, box, var = layers.multi_box_head(maps, pictures, 8, 2, [[1.0]], **sizes)
    loc, conf = layers.reshape(loc, [0, -1, 4]), layers.reshape(conf, [0, -1, 2])
    box, var = layers.reshape(box, [-1, 4]), layers.reshape(var, [-1, 4])
    true = layers.data("true", [4], lod_level=1)
    label = layers.data("label", [1], dtype="int32", lod_level=1)
    loss = layers.reduce_sum(layers.ssd_loss(loc, conf, true, label, box, var))
    default_startup_program().random_seed = 1
    fluid.optimizer.Adam(0.01).minimize(loss)
    exe.run(default_startup_program())
    place = fluid.CPUPlace()
    feed = {
        "image": np.linspace(0, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8),
        "true": fluid.create_lod_tensor(np.array([[0.2, 0.2, 0.7, 0.6]], np.float32), [[1]], place),
        "label": fluid.create_lod_tensor(np.array([[1]], np.int32), [[1]], place),
    }
    losses = [float(exe.run(feed=feed, fetch_list=[loss])[0].item()) for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0]


# ---- errors

CALLS: list[tuple[Callable[[Variable], Any], type[Exception], str]] = [
    (lambda x: layers.conv3d(x, 2, 3), ValueError, "conv3d takes volumes [N, C, D, H, W]"),
    (lambda x: layers.conv2d(x, 2, 3, padding=[1, 2, 3]), ValueError, "padding must be a number or two"),
    (lambda x: layers.conv2d(x, 2, 3, padding=[[1, 1], [0, 0], [0, 0], [0, 0]]), ValueError, "batch and channels can not be padded"),
    (lambda x: layers.conv2d(x, 2, 3, param_attr=False), ValueError, "param_attr can not be False"),
    (lambda x: layers.conv2d_transpose(x, 2), ValueError, "needs a filter_size or an output_size"),
    (lambda x: layers.adaptive_pool2d(x, 2, "avg", True), ValueError, "an average has no index"),
    (lambda x: layers.adaptive_pool2d(x, "2"), TypeError, "'pool_size'"),
    (lambda x: layers.instance_norm(x, bias_attr=False), ValueError, "neither attribute can be False"),
    (lambda x: layers.layer_norm(x, bias_attr=False), ValueError, "bias_attr can not be False"),
    (lambda x: layers.group_norm(x, 1, data_layout="CHW"), ValueError, "'NCHW' or 'NHWC'"),
    (lambda x: layers.unfold(x, [2, 2, 2]), AssertionError, "kernel_sizes must be a number or two"),
    (lambda x: layers.expand(x, [1, 1, 1, -1]), AssertionError, "expand_times of expand must be at least 1"),
    (lambda x: layers.pad2d(x, mode="mirror"), AssertionError, "constant, reflect or edge, not 'mirror'"),
    (lambda x: layers.lrn(layers.reshape(x, [-1, 8])), ValueError, "lrn takes images"),
    (lambda x: layers.inplace_abn(x, act="relu"), ValueError, "not 'relu'"),
    (lambda x: layers.affine_channel(x), TypeError, "'scale'"),
    (lambda x: layers.spectral_norm(x, power_iters=1.5), TypeError, "'power_iters'"),
    (lambda x: layers.resize_bilinear(x), ValueError, "needs an out_shape or a scale"),
    (lambda x: layers.resize_bilinear(x, scale=-1), ValueError, "scale must be more than 0"),
    (lambda x: layers.resize_bilinear(x, [0, 3]), ValueError, "more than 0"),
    (lambda x: layers.resize_bilinear(x, [3]), ValueError, "must have 2 sizes"),
    (lambda x: layers.resize_trilinear(x, [1, 2, 3]), ValueError, "TRILINEAR takes 5 axes"),
    (lambda x: layers.image_resize(x, [3, 3], resample="BICUBIC"), ValueError, "not 'BICUBIC'"),
    (lambda x: layers.pixel_shuffle(x, 2.0), TypeError, "'upscale_factor'"),
    (lambda x: layers.space_to_depth(x, 2.0), ValueError, "'blocksize' in space_to_depth must be int"),
    (lambda x: layers.unfold(x, 2, paddings=[1, 2, 3]), ValueError, "one, 2 or 4 numbers"),
    (lambda x: layers.similarity_focus(x, 0, [1]), ValueError, "must be 1, 2 or 3"),
    (lambda x: layers.affine_grid(x, 5), ValueError, "'out_shape' in affine_grid must be list of int or Variable"),
    (lambda x: layers.psroi_pool(x, x, 1, 1, 1, 1), TypeError, "'spatial_scale'"),
    (lambda x: layers.box_coder(x, None, x), TypeError, "'prior_box_var'"),
    (lambda x: layers.prior_box(x, x, 4.0, steps=1.0), ValueError, "'steps' in prior_box must be list of float"),
    (lambda x: layers.multiclass_nms(x, x, 1, 1, 1), TypeError, "'score_threshold'"),
    (lambda x: layers.ssd_loss(x, x, x, x, x, mining_type="hard_example"), ValueError, "'max_negative'"),
    (lambda x: layers.multi_box_head([x], x, 8, 2, [[1.0]]), ValueError, "needs 1 min_sizes"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), CALLS, ids=[c[2][:40] for c in CALLS])
def test_bad_arguments(
    call: Callable[[Variable], Any], error: type[Exception], message: str
) -> None:
    x = image()
    with pytest.raises(error, match=re.escape(message)):
        call(x)
