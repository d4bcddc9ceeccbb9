"""Layers that make, move, join and index tensors: what they write down, refuse and compute."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Variable, default_main_program, default_startup_program

pytestmark = pytest.mark.usefixtures("fresh_programs")

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def ops() -> list[str]:
    return [op.type for op in default_main_program().global_block().ops]


def fed(name: str, array: Any, *, batch: bool = False) -> Variable:
    shape = [None, *array.shape[1:]] if batch else list(array.shape)
    var = fluid.data(name, shape, str(array.dtype))
    var.stop_gradient = array.dtype.kind != "f"
    return var


def computed(out: Any, **feed: Any) -> Any:
    """Run the default main program once; a list of variables returns a list of arrays."""
    several = isinstance(out, list | tuple)
    fetches = list(out) if several else [out]
    with fluid.scope_guard(fluid.Scope()):
        result = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetches)
    return result if several else result[0]


def number(value: int, dtype: str = "int32") -> Variable:
    return layers.fill_constant([1], dtype, value)


# ---- sizes that are variables


def test_sizes_among_numbers_become_constants() -> None:
    cube, two = fed("cube", CUBE), fed("two", np.array([2], np.int32))
    out = layers.reshape(cube, [two, -1, 4])
    assert ops() == ["fill_constant", "fill_constant", "reshape2"]
    assert out.shape == (-1, -1, 4)
    assert computed(out, cube=CUBE, two=np.array([2], np.int32)).shape == (2, 3, 4)


def test_sizes_of_new_tensors_are_narrowed() -> None:
    size = fed("size", np.array([3]))
    layers.fill_constant([2, size], "float32", 1.5)
    assert ops() == ["fill_constant", "cast", "fill_constant"]


@pytest.mark.parametrize(
    ("layer", "sizes", "want"),
    [
        (lambda x, sizes: layers.expand(x, sizes), [2, 1, 3], (4, 3, 12)),
        (lambda x, sizes: layers.unsqueeze(x, sizes), [0, 2], (1, 2, 1, 3, 4)),
        (lambda x, sizes: layers.reshape(x, sizes), [3, -1], (3, 8)),
        (lambda x, sizes: layers.crop_tensor(x, sizes), [1, 2, 3], (1, 2, 3)),
        (lambda x, sizes: layers.slice(x, [0, 1], [0, 1], sizes), [1, 3], (1, 2, 4)),
        (lambda x, sizes: layers.slice(x, [0, 1], [False, True], sizes), [1, 3], (1, 2, 4)),
        (lambda x, sizes: layers.uniform_random(sizes), [2, 5], (2, 5)),
        (lambda x, sizes: layers.gaussian_random(sizes), [2, 5], (2, 5)),
        (lambda x, sizes: layers.randint(3, shape=sizes), [2, 5], (2, 5)),
    ],
)
def test_one_variable_may_list_all_sizes(
    layer: Callable[..., Variable], sizes: list[int], want: tuple[int, ...]
) -> None:
    told = np.array(sizes, np.int32)
    out = layer(fed("cube", CUBE), fed("sizes", told))
    assert computed(out, cube=CUBE, sizes=told).shape == want


# ---- joining and splitting


def test_concat_and_split_undo_each_other() -> None:
    cube = fed("cube", CUBE, batch=True)
    parts = layers.split(cube, [1, -1], dim=1)
    whole = layers.concat(parts, axis=-2)
    assert ([part.shape for part in parts], whole.shape) == (
        [(-1, 1, 4), (-1, 2, 4)],
        (-1, 3, 4),
    )
    np.testing.assert_array_equal(computed(whole, cube=CUBE), CUBE)


def test_split_keeps_the_remainder() -> None:
    table = fed("table", TABLE, batch=True)
    halves = layers.split(table, 2, dim=0)
    with pytest.raises(ValueError, match=r"size 3 cannot be split into \[1, 1\]"):
        computed(halves, table=TABLE[:3])


def test_unread_outputs_have_zero_gradients() -> None:
    table, other = fed("table", TABLE), fed("other", TABLE)
    table.stop_gradient = True
    loss = layers.reduce_sum(layers.square(layers.concat([table, other], axis=1)))
    (gradient,) = fluid.gradients([loss], [other])
    np.testing.assert_array_equal(computed(gradient, table=TABLE, other=TABLE + 1), 2 * (TABLE + 1))


def test_tensors_of_an_array_are_joined() -> None:
    table, array = fed("table", TABLE), layers.create_array("float32")
    for place in (0, 1):
        layers.array_write(table, number(place, "int64"), array)
    joined, stacked = layers.concat([array], axis=0), layers.stack([array], axis=0)
    result = computed([joined, stacked], table=TABLE)
    assert [each.shape for each in result] == [(8, 3), (2, 4, 3)]


# ---- elements by their places


def test_rows_that_are_taken_and_put_back() -> None:
    table, places = fed("table", TABLE), np.array([3, 1])
    index = fed("index", places)
    rows = layers.gather(table, index)
    result = computed([rows, layers.scatter(table, index, rows * 2.0)], table=TABLE, index=places)
    want = TABLE.copy()
    want[places] *= 2
    np.testing.assert_array_equal(result[0], TABLE[places])
    np.testing.assert_array_equal(result[1], want)


def test_where_indices_feed_gather() -> None:
    table = fed("table", TABLE)
    places = layers.where(layers.greater_than(table, layers.fill_constant([1], "float32", 7.5)))
    chosen = layers.gather_nd(table, places)
    assert places.shape == (-1, 2)
    result = computed([places, chosen], table=TABLE)
    np.testing.assert_array_equal(result[0], np.argwhere(TABLE > 7.5))
    np.testing.assert_array_equal(result[1], TABLE[TABLE > 7.5])


def test_where_returns_index_rows() -> None:
    table = fed("table", TABLE)
    rows, columns = layers.nonzero(table, as_tuple=True)
    result = computed([rows, columns], table=TABLE)
    np.testing.assert_array_equal(np.concatenate(result, axis=1), np.argwhere(TABLE))
    (places,) = layers.nonzero(layers.reshape(table, [-1]), as_tuple=True)
    assert places.shape == (-1, 1)


def test_roll_without_axes_shifts_all() -> None:
    out = layers.roll(fed("table", TABLE), 4)
    assert ops() == ["reshape2", "roll", "reshape2"]
    np.testing.assert_array_equal(computed(out, table=TABLE), np.roll(TABLE, 4))


# ---- square brackets


@pytest.mark.parametrize(
    ("item", "written"),
    [
        (np.s_[1], ["slice"]),
        (np.s_[:, 0], ["slice"]),
        (np.s_[-1, 1:, -2:], ["slice"]),
        (np.s_[:, 0:3:2], ["strided_slice"]),
        (np.s_[:, ::2, 1], ["strided_slice"]),
        (np.s_[:, 2:0:-1], ["strided_slice"]),
        (np.s_[:, 1::-1], ["strided_slice"]),
        (np.s_[:, ::-1], ["reverse"]),
        (np.s_[0, ::-1, 1:], ["slice", "reverse"]),
        (np.s_[..., -1], ["slice"]),
        (np.s_[1, 2, 3], ["slice"]),
        (np.s_[:], []),
    ],
)
def test_parts_as_python_takes_them(item: Any, written: list[str]) -> None:
    out = fed("cube", CUBE)[item]
    assert ops() == written
    result = computed(layers.assign(out), cube=CUBE)
    np.testing.assert_array_equal(result.reshape(CUBE[item].shape), CUBE[item])


@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_place_that_a_variable_holds(place: int) -> None:
    cube, at = fed("cube", CUBE), np.array([place])
    out = cube[:, fed("at", at)]
    assert out.shape == (2, 4)
    np.testing.assert_array_equal(computed(out, cube=CUBE, at=at), CUBE[:, place])


def test_gradients_go_through_square_brackets() -> None:
    cube = fed("cube", CUBE)
    loss = layers.reduce_sum(cube[1, :, 1:3] * 3.0)
    (gradient,) = fluid.gradients([loss], [cube])
    want = np.zeros_like(CUBE)
    want[1, :, 1:3] = 3
    np.testing.assert_array_equal(computed(gradient, cube=CUBE), want)


def test_a_transposed_part_is_called_after_the_variable() -> None:
    assert fed("cube", CUBE)[1:, ::-1].name == "cube_slice_reverse_0"


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ("last", TypeError, "takes numbers, ranges and variables as index, not 'last'"),
        (True, TypeError, "not True"),
        (1.5, TypeError, "not 1.5"),
        ((0, 0, 0, 0), IndexError, "has 3 axes, too few for 4 indices"),
        (np.s_[::-2], ValueError, "a step of -2 needs a start and an end"),
    ],
)
def test_an_index_that_is_none(item: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fed("cube", CUBE)[item]


def test_a_variable_has_no_elements_to_walk_over() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        iter(fed("cube", CUBE))


# ---- making tensors


def test_batches_of_unit_matrices() -> None:
    out = layers.eye(2, 3, batch_shape=[4])
    np.testing.assert_array_equal(computed(out), np.tile(np.eye(2, 3), (4, 1, 1)))


def test_ranges_of_variables_and_numbers() -> None:
    out = layers.range(number(1), 7, 2.0, "int64")
    assert ops() == ["fill_constant", "cast", "fill_constant", "fill_constant", "range"]
    assert computed(out).tolist() == [1, 3, 5]
    assert layers.arange(0, 3).dtype == fluid.core.VarDesc.VarType.FP32


def test_the_rank_is_one_number() -> None:
    assert computed(layers.rank(fed("cube", CUBE)), cube=CUBE) == 3


def test_like_ops_take_the_shape_of_their_input() -> None:
    cube = fed("cube", CUBE, batch=True)
    result = computed(
        [
            layers.ones_like(cube),
            layers.full_like(cube, 3, dtype="int64"),
            layers.fill_constant_batch_size_like(cube, [7, 1], "float64", 2.5, 2, 1),
        ],
        cube=CUBE,
    )
    assert [(each.shape, each.dtype.name, each.flat[0]) for each in result] == [
        ((2, 3, 4), "float32", 1),
        ((2, 3, 4), "int64", 3),
        ((7, 4), "float64", 2.5),
    ]


# ---- chance


def test_random_layers_of_a_seed_repeat() -> None:
    drawn = [layers.uniform_random([5], seed=3) for _ in range(2)] + [layers.randn([5])]
    first, second, free = computed(drawn)
    np.testing.assert_array_equal(first, second)
    assert (free != first).all()


def test_random_crops_differ_from_step_to_step() -> None:
    image = np.arange(400, dtype=np.float32).reshape(1, 20, 20)
    crop = layers.random_crop(fed("image", image), [4, 4], seed=3)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(default_startup_program())
        corners = {
            float(exe.run(feed={"image": image}, fetch_list=[crop])[0][0, 0, 0]) for _ in range(6)
        }
    assert len(corners) > 1


def test_random_crop_without_a_seed_varies() -> None:
    layers.random_crop(fed("image", CUBE), [2, 2])
    assert [op.type for op in default_startup_program().global_block().ops] == ["randint"]


# ---- what is refused


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: layers.transpose(x, [0, 1]), ValueError, "each axis of 'cube'"),
        (lambda x: layers.transpose(x, [0, 1, 1]), ValueError, "each axis of 'cube'"),
        (lambda x: layers.flatten(x, 4), ValueError, "from 0 to 3, not 4"),
        (lambda x: layers.split(x, 1), ValueError, "two parts or more"),
        (lambda x: layers.split(x, 2.0), TypeError, "num_or_sections"),
        (lambda x: layers.split(x, 3, dim=0), ValueError, "size 2 cannot be split into"),
        (lambda x: layers.concat([x, "x"]), TypeError, r"'input\[1\]' in concat must be Variable"),
        (lambda x: layers.concat([x, layers.cast(x, "int64")]), ValueError, "int64|INT64"),
        (lambda x: layers.concat([x], axis=1.0), TypeError, "axis"),
        (lambda x: layers.expand(x, [1, 0, 1]), ValueError, "at least 1"),
        (
            lambda x: layers.expand(x, [1, "2", 1]),
            TypeError,
            r"'expand_times\[1\]' in expand must be int",
        ),
        (lambda x: layers.pad2d(x, mode="wrap"), ValueError, "not 'wrap'"),
        (lambda x: layers.unstack(fluid.data("y", [None, 2])), ValueError, "needs num"),
        (lambda x: layers.slice(x, [0], 1, [2]), ValueError, "'starts' in slice must be"),
        (lambda x: layers.crop_tensor(x, [0, 1, 1]), ValueError, "shape of crop_tensor"),
        (lambda x: layers.crop_tensor(x, [1, 1, 1], [-1, 0, 0]), ValueError, "offsets of crop"),
        (lambda x: layers.flip(x, []), ValueError, "dims of flip is empty"),
        (lambda x: layers.tril(layers.reshape(x, [24])), ValueError, "tril takes matrices"),
        (lambda x: layers.gather(x, x), ValueError, "expected element type i32 or i64"),
        (lambda x: layers.multiplex([x], x), ValueError, "two tensors or more"),
        (lambda x: layers.one_hot(x, 3), TypeError, "'input' in one_hot must be one of int32"),
        (lambda x: layers.unique_with_counts(x), ValueError, "takes a vector"),
        (lambda x: layers.eye(-1), TypeError, "num_rows of eye"),
        (lambda x: layers.eye(2, batch_shape=[0]), TypeError, "batch_shape of eye"),
        (lambda x: layers.ones([0], "float32"), ValueError, "ones takes sizes of at least 1"),
        (lambda x: layers.fill_constant([], "float32", 1), ValueError, "one size or more"),
        (lambda x: layers.fill_constant([2], "int8", 1), TypeError, "'dtype' in fill_constant"),
        (lambda x: layers.randint(3, 3), ValueError, "low < high"),
        (lambda x: layers.randperm(0), ValueError, "at least 1"),
        (lambda x: layers.randn([2, 0]), ValueError, "sizes of at least 1"),
        (
            lambda x: layers.random_crop(x, [2], seed="3"),
            ValueError,
            "'seed' in random_crop must be int or Variable",
        ),
        (lambda x: layers.shard_index(number(3, "int64"), 8, 2, 2), ValueError, "shard_id"),
        (lambda x: layers.scatter_nd_add(x, number(0), number(1)), ValueError, "the same dtype"),
    ],
)
def test_bad_arguments(
    call: Callable[[Variable], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(fed("cube", CUBE))


def test_triangles_are_named_by_their_layer(fresh_programs: Any) -> None:
    """The reference names them so, without the .tmp of other results."""
    matrix = fluid.data("x", [3, 4], "float32")
    assert fluid.layers.triu(matrix).name == "triu_0"
    assert fluid.layers.tril(matrix).name == "tril_0"
    assert fluid.layers.triu(matrix, name="upper").name == "upper"
