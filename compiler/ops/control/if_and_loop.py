"""The graph ops that own a body: the IR form of every program op with a block.

They have no numerics of their own: conversion, the interpreter and code generation handle them
specially. `Captured` are the outer values that a body receives as its last feeds; `Written` are the
values that its first results become. `Before` and `After` order a body's collectives with those
around it.
"""

from __future__ import annotations

from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_token, writes, writes_token
from compiler.ir.types import TensorType


class If(OpDef, op="if"):
    """Run the body once if a condition is true; Runs then records one run.

    The condition is true if every element of every Cond is, or, with `any_element`, if no Cond is
    empty.
    """

    no_kernel_reason = "the host executes control flow"

    any_element = attr(False)
    Cond = reads(many=True)
    Captured = reads(many=True, optional=True)
    Written = writes(many=True, optional=True)
    Runs = writes(optional=True)
    Before = reads_token()
    After = writes_token()

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}


class Loop(If, op="loop"):
    """Run the body while Cond, which the body updates, is true; Runs records each run."""

    no_kernel_reason = "the host executes control flow"


class Unwind(OpDef, op="unwind"):
    """Run the body for each recorded run, in reverse; its first feeds are the recorded values."""

    no_kernel_reason = "the host executes control flow"

    Runs = reads(optional=True)
    Captured = reads(many=True, optional=True)
    Written = writes(many=True, optional=True)
    Before = reads_token()
    After = writes_token()

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}
