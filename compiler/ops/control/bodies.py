"""The ops of a graph that own a body: what every op of a program with a block becomes.

They compute nothing of their own: converting, running and generating code treat them in their own
way. `Captured` are the vars a body sees as its last feeds; `Written` are those that its first
results become. `Before` and `After` chain a body with collectives with those around it.
"""

from __future__ import annotations

from compiler.ir.opdef import OpDef, attr, reads, reads_order, writes, writes_order
from compiler.ir.types import TensorType


class If(OpDef, op="if"):
    """Run the body once if a condition holds; Runs then holds one run.

    It holds if every element of every Cond is true, or, with `any_element`, if no Cond is empty.
    """

    no_kernel_reason = "branches and loops are steered by the host"

    any_element = attr(False)
    Cond = reads(many=True)
    Captured = reads(many=True, optional=True)
    Written = writes(many=True, optional=True)
    Runs = writes(optional=True)
    Before = reads_order()
    After = writes_order()

    def infer(self) -> dict[str, TensorType]:
        return {}


class Loop(If, op="loop"):
    """Run the body as long as Cond is true, which the body changes; Runs holds each run."""

    no_kernel_reason = "branches and loops are steered by the host"


class Unwind(OpDef, op="unwind"):
    """Run the body for each run kept, the last one first; its first feeds are what was kept."""

    no_kernel_reason = "branches and loops are steered by the host"

    Runs = reads(optional=True)
    Captured = reads(many=True, optional=True)
    Written = writes(many=True, optional=True)
    Before = reads_order()
    After = writes_order()

    def infer(self) -> dict[str, TensorType]:
        return {}
