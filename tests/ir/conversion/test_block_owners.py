"""Ops that own blocks and say what cannot be: refused in words, before anyone walks in circles."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from compiler.errors import CompileError
from compiler.ir.model_format.program_desc import dump_program, load_program
from compiler.ir.program import BlockRef, OpDesc, Program
from tests.support.nets import zoo

Change = Callable[[OpDesc], dict[str, Any]]


RNN, LOOP = "static_rnn_lm", "while_power"


@dataclass(frozen=True)
class Saved:
    """A training program as bytes, what it is fed and what is fetched."""

    data: bytes
    feeds: list[str]
    loss: str

    def compiled(self, program: Program) -> None:
        compiler.compile(program, feed=self.feeds, fetch=[self.loss])


@pytest.fixture(scope="module")
def saved() -> dict[str, Saved]:
    """Give training programs with every kind of owner but conditions."""
    results: dict[str, Saved] = {}
    for name in (RNN, LOOP):
        model = zoo.build(fluid, name)
        feeds = list(zoo.draw(name, np.random.RandomState(0), 2))
        results[name] = Saved(dump_program(model.main), feeds, model.loss.name)
    return results


def changed(program: Program, kind: str, change: Change) -> None:
    (block, place), *_ = (
        (block, place)
        for block in program.blocks
        for place, op in enumerate(block.ops)
        if op.type == kind
    )
    op = block.ops[place]
    said = {"inputs": op.inputs, "outputs": op.outputs, "attrs": op.attrs, **change(op)}
    block.ops[place] = OpDesc(op.type, said["inputs"], said["outputs"], said["attrs"])


def attrs(**given: Any) -> Change:
    return lambda op: {"attrs": {**op.attrs, **given}}


def inputs(**given: Any) -> Change:
    return lambda op: {"inputs": {**op.inputs, **given}}


def without(name: str) -> Change:
    return lambda op: {
        "attrs": {key: value for key, value in op.attrs.items() if key != name},
        "inputs": {key: value for key, value in op.inputs.items() if key != name},
    }


@pytest.mark.parametrize(
    ("model", "kind", "change", "message"),
    [
        (RNN, "recurrent", attrs(sub_block=BlockRef(0)), r"in block 0 of 3 has the sub_block 0, e"),
        (RNN, "recurrent", attrs(sub_block=BlockRef(9)), "has the sub_block 9, expected"),
        (LOOP, "while", without("sub_block"), "has the sub_block None, expected"),
        (LOOP, "while_grad", attrs(sub_block="x"), "has the sub_block 'x', expected"),
        (RNN, "recurrent", without("inputs"), "Input inputs not found: recurrent needs it"),
        (RNN, "recurrent_grad", inputs(step_scopes=[]), "Input step_scopes not found"),
        (LOOP, "while_grad", without("StepScopes"), "Input StepScopes not found"),
        (RNN, "recurrent", without("states"), "has 1 ex_states, 0 states, 1 initial_states"),
        (RNN, "recurrent_grad", without("ex_states"), "has 0 ex_states, 1 states"),
        (RNN, "recurrent", attrs(states=3), "'states' is int 3, not list"),
        (RNN, "recurrent", attrs(states=[3]), "item 0 of attribute 'states' is int 3, not str"),
        (LOOP, "while_grad", attrs(original_output_grad=[1]), "is int 1, not str"),
        (
            RNN,
            "recurrent",
            lambda op: {"outputs": {**op.outputs, "outputs": op.outputs["outputs"] * 2}},
            "recurrent names '.*' twice",
        ),
    ],
)
def test_owners_that_cannot_be(
    saved: dict[str, Saved], model: str, kind: str, change: Change, message: str
) -> None:
    program = load_program(saved[model].data)
    changed(program, kind, change)
    with pytest.raises(CompileError, match=message):
        saved[model].compiled(program)


@pytest.mark.parametrize("model", [RNN, LOOP])
def test_owners_as_they_are(saved: dict[str, Saved], model: str) -> None:
    saved[model].compiled(load_program(saved[model].data))
