"""The converters of ops that are not pointwise, by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from compiler.codegen.onnx.nodes import Nodes
from compiler.ir.graph import Op

__all__ = ["CONVERTERS", "Converter", "converts"]

Converter: TypeAlias = Callable[[Nodes, Op], None]
"""Writes the nodes of an op, binding its outputs; raises Unsupported for a use that ONNX lacks."""

CONVERTERS: dict[str, Converter] = {}


def converts(*kinds: str) -> Callable[[Converter], Converter]:
    """Register a function as the converter of ops of these kinds."""

    def register(function: Converter) -> Converter:
        CONVERTERS.update(dict.fromkeys(kinds, function))
        return function

    return register
