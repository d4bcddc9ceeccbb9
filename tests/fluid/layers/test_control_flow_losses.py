"""Nets with control flow learn as they do with 1.8.5: losses recorded from it, step for step."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from tests.fluid.layers.control_flow_models import MODELS, train

RECORDED = json.loads((Path(__file__).parents[2] / "data/control_flow_losses.json").read_text())
WRONG_THERE = {
    "while_that_sums",
    "while_loop_with_op",
    "while_loop_with_number",
    "while_loop_in_place",
}
"""Loops that write over what their gradients read: test_control_flow_gradients.py checks them."""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_losses_are_those_of_the_reference(model: Callable[[Any], Any]) -> None:
    losses = train(fluid, model, sequences)
    if model.__name__ not in WRONG_THERE:
        np.testing.assert_allclose(losses, RECORDED[model.__name__], rtol=1e-4, atol=1e-6)
    assert len(set(losses)) == len(losses)


def sequences(rows: Any, lengths: list[int]) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())
