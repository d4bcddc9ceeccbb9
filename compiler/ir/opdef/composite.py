"""Ops that are short programs of other ops: fused ops of saved models, mostly.

    class Fc(Composite, op="fc"):
        Input, W, Out = reads(), reads(), writes()

        def expand(self, steps):
            steps.write("Out", steps("mul", X=steps["Input"], Y=steps["W"]))

A graph never holds such an op: `compiler.ir.conversion.block_walk` adds its steps instead,
so that passes and both targets see ops they know. Its types and its reference implementation are
those of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from compiler.ir.opdef.composite_steps import Steps
from compiler.ir.opdef.definition import OpDef, Types
from compiler.ir.program import OpDesc
from compiler.lazy_loading import load

__all__ = ["Composite", "Steps"]


class Composite(OpDef):
    """An op that `expand`s into others; companions of its outputs are those of its steps."""

    is_composite = True

    def expand(self, steps: Steps) -> None:
        """Append the steps, and say which name each output slot gets."""
        raise NotImplementedError

    def steps(self, op: OpDesc, types: Types) -> list[OpDesc]:
        """The ops that an op of this kind in a program becomes; `types` are lists by slot."""
        steps = Steps(self.kind, op.inputs, types)
        self.expand(steps)
        return steps.finished(op)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types that the steps infer; errors begin with the kind of the whole."""
        return _graphs().infer_types(self, types)

    def evaluate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run the steps one by one."""
        return _graphs().evaluate(self, values)


def _graphs() -> Any:
    """What makes a graph of the steps, loaded when it is first needed, as all of graphs is."""
    return load(lambda: import_module("compiler.ir.conversion.composite_graph"))
