"""Samples at other sizes: which axes grow together, and what is drawn."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.ir.opdef import find
from tests.ops.samples import Sample, numbers
from tests.ops.samples.sequence import rows
from tests.ops.scaled import Growth, Scaling, accepts, growths, resized, scaling_of


def scaled(sample: Sample) -> Scaling:
    result = scaling_of(sample)
    assert result is not None
    return result


def axes_of(sample: Sample) -> set[frozenset[tuple[str, int, int]]]:
    return {frozenset(growth.axes) for growth in scaled(sample).growths}


def test_the_sizes_of_a_product_are_three() -> None:
    sample = Sample("matmul", {"X": numbers(4, 3), "Y": numbers(3, 5)}, {}, ("X", "Y"))
    rows, inner, columns = ("X", 0, 0), frozenset({("X", 0, 1), ("Y", 0, 0)}), ("Y", 0, 1)
    assert axes_of(sample) == {frozenset({rows}), inner, frozenset({columns})}


def test_channels_grow_with_their_scales() -> None:
    vectors = {name: numbers(3, low=0.5) for name in ("Scale", "Bias", "Mean", "Variance")}
    sample = Sample("batch_norm", {"X": numbers(4, 3, 2, 5), **vectors}, {"is_test": True})
    channels = frozenset({("X", 0, 1), *((name, 0, 0) for name in vectors)})
    assert channels in axes_of(sample)


def test_attributes_follow_a_size() -> None:
    sample = Sample("one_hot", {"X": np.array([[0], [4]])}, {"depth": 5})
    (growth,) = scaled(sample).growths
    assert growth.axes == (("X", 0, 0),) and not growth.attrs
    split = Sample("split", {"X": numbers(4, 6)}, {"axis": 1, "sections": [6]})
    assert ("sections",) in {growth.attrs for growth in scaled(split).growths}


def test_sequences_are_repeated() -> None:
    scaling = scaled(Sample("sequence_pool", rows((2, 0, 1), 4), {"pooltype": "SUM"}, ("X",)))
    (repeats,) = (growth for growth in scaling.growths if growth.repeats)
    result = resized(scaling, {repeats: 3})
    assert result.inputs["X"].shape == (9, 4)
    assert result.inputs["X_lod"][0].tolist() == [0, 2, 2, 3, 5, 5, 6, 8, 8, 9]


def test_rows_of_sequences_do_not_grow_alone() -> None:
    sample = Sample("sequence_reverse", rows((3, 1), 2), {})
    alone = [g for g in growths(sample) if ("X", 0, 0) in g.axes and not g.repeats]
    assert not alone


def test_indices_reach_to_the_end_of_what_they_index() -> None:
    ids = np.array([[1], [0], [2]])
    scaling = scaled(Sample("lookup_table", {"W": numbers(4, 2), "Ids": ids}, {}, ("W",)))
    words = scaling.indexed["Ids"]
    count = next(growth for growth in scaling.growths if ("Ids", 0, 0) in growth.axes)
    drawn = resized(scaling, {words: 50, count: 1000}, "name").inputs["Ids"]
    assert (drawn.min(), drawn.max()) == (0, 49)


def test_values_depend_on_name_and_seed_and_drift() -> None:
    scaling = scaled(Sample("relu", {"X": numbers(2, 3)}, {}, ("X",)))
    sizes = dict.fromkeys(scaling.growths, 50)
    first, again, *others = (
        resized(scaling, sizes, name, seed).inputs["X"]
        for name, seed in (("a", 0), ("a", 0), ("b", 0), ("a", 1))
    )
    assert np.array_equal(first, again)
    assert all(not np.array_equal(first, other) for other in others)
    assert first[:10].max() < first[-10:].max() <= numbers(2, 3).max()


@pytest.mark.parametrize("seed", [0, 1])
def test_enumerated_values_are_kept(seed: int) -> None:
    mask = np.array([0, 1, 1, 0, 1, 0], np.float32)
    growth = Growth((("X", 0, 0),), 6)
    scaling = Scaling(Sample("relu", {"X": mask}, {}), (growth,), {})
    assert set(resized(scaling, {growth: 40}, "", seed).inputs["X"].tolist()) == {0.0, 1.0}


def test_integers_with_negative_ones_are_repeated() -> None:
    path = np.array([[0, 2, -1], [1, -1, -1]])
    growth = Growth((("X", 0, 0),), 2)
    scaling = Scaling(Sample("relu", {"X": path}, {}), (growth,), {})
    assert resized(scaling, {growth: 5}).inputs["X"].tolist() == [*path.tolist() * 2, [0, 2, -1]]


def test_the_reference_refuses_sizes_that_do_not_fit() -> None:
    sample = Sample("matmul", {"X": numbers(4, 3), "Y": numbers(3, 5)}, {}, ("X", "Y"))
    assert find("matmul") and accepts(sample)
    assert not accepts(replace(sample, inputs={**sample.inputs, "Y": numbers(2, 5)}))
