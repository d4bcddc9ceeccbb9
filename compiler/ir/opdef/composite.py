"""Composite ops, which expand into other ops; mostly fused ops of saved models.

    class Fc(Composite, op="fc"):
        Input, W, Out = reads(), reads(), writes()

        def expand(self, steps):
            steps.write("Out", steps("mul", X=steps["Input"], Y=steps["W"]))

A graph never contains such an op: `compiler.ir.conversion.block_walk` adds its steps instead, so
that passes and code generators only see primitive ops. Its types and its reference implementation
are those of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from compiler.ir.opdef.composite_steps import CompositeSteps
from compiler.ir.opdef.definition import OpDef, Types
from compiler.ir.program import OpDesc
from compiler.support.lazy_loading import load

__all__ = ["Composite", "CompositeSteps"]


class Composite(OpDef):
    """An op that `expand`s into others, which also compute the LoD and rows of its outputs."""

    is_composite = True

    def expand(self, steps: CompositeSteps) -> None:
        """Append the steps and name the value of each output slot."""
        raise NotImplementedError

    def steps(self, op: OpDesc, types: Types) -> list[OpDesc]:
        """Expand an op of a program; `types` are lists by slot."""
        steps = CompositeSteps(self.kind, op.inputs, types)
        self.expand(steps)
        return steps.finished(op)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Infer the types by way of the steps; errors begin with the kind of the composite op."""
        return _graphs().infer_types(self, types)

    def evaluate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate the steps one by one."""
        return _graphs().evaluate(self, values)


def _graphs() -> Any:
    """Return the module that builds graphs of steps, imported lazily as all of conversion is."""
    return load(lambda: import_module("compiler.ir.conversion.composite_graph"))
