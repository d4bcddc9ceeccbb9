"""Ops that keep the shape of an operand beside their result, over sizes that data decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

SHAPES: dict[str, Callable[[Any], Any]] = {
    "transpose": lambda mask: layers.transpose(mask, [1, 0]),
    "reshape": lambda mask: layers.reshape(mask, [-1]),
    "unsqueeze": lambda mask: layers.unsqueeze(mask, [1]),
    "squeeze": lambda mask: layers.squeeze(layers.unsqueeze(mask, [0, 2]), [2]),
    "flatten": lambda mask: layers.flatten(layers.unsqueeze(mask, [0]), axis=2),
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("lengths", [[3, 1, 2], [0, 0, 0]], ids=str)
def test_the_shape_is_kept_without_elements(kind: str, lengths: list[int]) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        counts = fluid.data("lengths", [3], "int64")
        out = SHAPES[kind](layers.sequence_mask(counts, dtype="float32")) * 2.0
        total = layers.reduce_sum(out)
    executor = fluid.Executor(fluid.CPUPlace())
    feed = {"lengths": np.array(lengths, np.int64)}
    for _ in range(2):
        values, sums = executor.run(main, feed=feed, fetch_list=[out, total])
        assert values.size == 3 * max(lengths)
        assert float(np.sum(values)) == float(sums.item()) == 2.0 * sum(lengths)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.float32)
    expected = mask.T if kind == "transpose" else mask
    np.testing.assert_array_equal(values.reshape(-1), 2 * expected.reshape(-1))
