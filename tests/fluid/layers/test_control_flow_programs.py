"""Programs with control flow, and their gradients, op for op as 1.8.5 writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fluid
from tests.fluid.layers.control_flow_models import MODELS

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "control_flow.json").read_text())
UNORDERED = ("while", "conditional_block", "recurrent")
"""Ops whose slots the reference fills in the order of a hash set."""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_program_is_that_of_the_reference(model: Callable[[Any], Any]) -> None:
    program = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(program, fluid.Program()):
        fluid.backward.append_backward(model(fluid))
    assert [block_text(block) for block in program.blocks] == RECORDED[model.__name__]


def block_text(block: Any) -> dict[str, Any]:
    ops = [op_text(op) for op in block.ops]
    return {"parent": block.parent_idx, "forward": block.forward_block_idx, "ops": ops}


def op_text(op: Any) -> str:
    return f"({slots(op, op.outputs)}) = {op.type}({slots(op, op.inputs)})"


def slots(op: Any, held: dict[str, list[str]]) -> str:
    free = op.type.removesuffix("_grad") in UNORDERED
    order = sorted if free else list
    return ", ".join(f"{slot}={'+'.join(order(held[slot]))}" for slot in sorted(held) if held[slot])


def test_grad_blocks_follow_their_forward_block() -> None:
    program = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(program, fluid.Program()):
        fluid.backward.append_backward(MODELS[2](fluid))
    assert [(b.parent_idx, b.forward_block_idx, b.backward_block_idx) for b in program.blocks] == [
        (-1, -1, -1),
        (0, -1, 3),
        (1, -1, 4),
        (0, 1, -1),
        (3, 2, -1),
    ]
