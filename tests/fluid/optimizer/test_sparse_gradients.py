"""Sparse gradients in programs: their kind, and what clips and updates do to the rows there are."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import clip, layers, optimizer, regularizer
from fluid.core import VarDesc
from fluid.framework import Variable, default_main_program

pytestmark = pytest.mark.usefixtures("fresh_programs")

SPARSE = VarDesc.VarType.SELECTED_ROWS
WORDS = [[[4], [1], [4]], [[0], [0], [1]]]


def table_loss(**rest: Any) -> Variable:
    words = layers.data("words", [1], dtype="int64")
    start = fluid.initializer.NumpyArrayInitializer(np.ones((6, 2), "float32"))
    attr = fluid.ParamAttr(name="emb", initializer=start)
    result = layers.embedding(words, [6, 2], is_sparse=True, param_attr=attr, **rest)
    return layers.mean(layers.square(result))


def trained(made: Any, steps: int = 2, **rest: Any) -> np.ndarray:
    """Return the table after some steps."""
    made.minimize(table_loss(**rest))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for step in range(steps):
        executor.run(feed={"words": np.array(WORDS[step % 2])})
    return np.array(fluid.global_scope().find_var("emb").get_tensor())


def kind(name: str) -> Any:
    return default_main_program().global_block().var(name).type


def kinds() -> list[str]:
    return [op.type for op in default_main_program().global_block().ops]


def test_gradients_are_declared_as_rows() -> None:
    optimizer.SGD(0.1).minimize(table_loss())
    gradient = default_main_program().global_block().var("emb@GRAD")
    assert (gradient.type, gradient.shape) == (SPARSE, (6, 2))


@pytest.mark.parametrize("ids", [[5, 0, 3], [3, 5, 3, 0], [5]])
@pytest.mark.parametrize("made", [optimizer.Momentum, optimizer.RMSProp])
def test_rows_may_be_in_any_order(made: Any, ids: list[int]) -> None:
    """The reference searches rows that are not sorted as if they were, and loses some."""
    tables = []
    for is_sparse in (True, False):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            words = layers.data("words", [1], dtype="int64")
            start = fluid.initializer.NumpyArrayInitializer(np.arange(12, dtype="f").reshape(6, 2))
            attr = fluid.ParamAttr(name="emb", initializer=start)
            result = layers.embedding(words, [6, 2], is_sparse, param_attr=attr)
            arguments = {"momentum": 0.9} if made is optimizer.Momentum else {}
            made(0.1, **arguments).minimize(layers.mean(layers.square(result)))
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(fluid.default_startup_program())
            for _ in range(2):
                executor.run(feed={"words": np.array(ids)[:, None]})
            tables.append(np.array(fluid.global_scope().find_var("emb").get_tensor()))
    assert tables[0] == pytest.approx(tables[1], rel=1e-6)


def test_sums_of_rows_are_rows() -> None:
    optimizer.SGD(0.1).minimize(table_loss() + table_loss())
    assert kind("emb@GRAD@RENAME@block0@0") == kind("emb@GRAD") == SPARSE


def test_decay_makes_a_dense_gradient_beside_the_sparse_one() -> None:
    result = trained(optimizer.SGD(0.1, regularization=regularizer.L2Decay(1.0)), steps=1)
    assert kind("emb@GRAD@NEWGRAD@") == VarDesc.VarType.LOD_TENSOR
    assert result[5] == pytest.approx(0.9)
    assert result[4] == pytest.approx(1 - 0.1 * (1 + 2 * 2 / 6))


def test_global_norms_are_of_merged_rows() -> None:
    limit = clip.GradientClipByGlobalNorm(1.0)
    result = trained(optimizer.SGD(1.0, grad_clip=limit), steps=1)
    merged = kinds().index("merge_selected_rows")
    assert kinds()[merged + 1 : merged + 3] == ["get_tensor_from_selected_rows", "square"]
    assert 1 - result[4] == pytest.approx(2 / 10**0.5)
    assert 1 - result[1] == pytest.approx(1 / 10**0.5)
    assert (result[[0, 2, 3, 5]] == 1).all()


def test_values_are_clipped_where_there_are_rows() -> None:
    """A dense gradient would be raised to the lower bound everywhere."""
    result = trained(optimizer.SGD(1.0, grad_clip=clip.GradientClipByValue(0.6, 0.5)), steps=1)
    assert result[:, 0] == pytest.approx([1.0, 0.5, 1.0, 1.0, 0.4, 1.0])


def test_norms_are_clipped() -> None:
    result = trained(optimizer.SGD(1.0, grad_clip=clip.GradientClipByNorm(0.5)), steps=1)
    assert 1 - result[:, 0] == pytest.approx(np.array([0, 1, 0, 0, 2, 0]) / (10 / 0.25) ** 0.5)


def test_lazy_adam_moves_the_rows_there_are() -> None:
    result = trained(optimizer.Adam(0.1, lazy_mode=True))
    first = 0.1
    assert result[[2, 3, 5]] == pytest.approx(1.0)
    # The row of the second step only, which is the first one that Adam corrects for two.
    assert 1 - result[4] == pytest.approx(first, rel=1e-4)
    assert 1 - result[0] == pytest.approx(0.1 * 0.1 / 0.19 * (0.001999 / 0.001) ** 0.5, rel=1e-3)


def test_adam_moves_all_rows_that_ever_had_a_gradient() -> None:
    result = trained(optimizer.Adam(0.1))
    assert result[[2, 3, 5]] == pytest.approx(1.0)
    assert (1 - result[4] > 0.11).all()


def test_tables_on_servers_are_updated_by_sgd() -> None:
    decay = regularizer.L2Decay(1.0)
    norm = clip.GradientClipByGlobalNorm(1e-3)
    with pytest.warns(UserWarning, match="'emb' with is_distributed=True is updated by sgd"):
        adam = optimizer.Adam(0.1, regularization=decay, grad_clip=norm)
        result = trained(adam, steps=1, is_distributed=True)
    assert kinds()[-1] == "sgd"
    assert result[4] == pytest.approx(1 - 0.1 * 2 * 2 / 6)
    assert not any("moment" in name for name in default_main_program().global_block().vars)


def test_padding_stays() -> None:
    result = trained(optimizer.Adagrad(0.1), padding_idx=4)
    assert (result[4] == 1).all()
    assert (result[1] < 1).all()


def test_a_table_in_float16_starts_and_is_looked_up() -> None:
    words = layers.data("words", [1], dtype="int64")
    result = layers.embedding(words, [6, 2], dtype="float16")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    (rows,) = executor.run(feed={"words": np.array(WORDS[0])}, fetch_list=[result])
    assert (rows.dtype, rows.shape) == (np.float16, (3, 2))


def test_errors_name_the_id_and_the_table() -> None:
    loss = table_loss()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    with pytest.raises(ValueError, match="id 6 at position 2 is not a row of the table emb"):
        executor.run(feed={"words": np.array([[1], [2], [6]])}, fetch_list=[loss])


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="'input' in embedding must be Variable"):
        layers.embedding("words", [6, 2])
    with pytest.raises(TypeError, match="'input' in embedding must be one of int64"):
        layers.embedding(layers.data("x", [1]), [6, 2])
    words = layers.data("ids", [1], dtype="int64")
    with pytest.raises(TypeError, match="'dtype' in embedding must be one of float16"):
        layers.embedding(words, [6, 2], dtype="int32")
    with pytest.raises(TypeError, match="must be SELECTED_ROWS, but 'ids' is LOD_TENSOR"):
        layers.get_tensor_from_selected_rows(words)
