"""Pointwise ops: the traced body of an op, one node for each part of the expression."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.codegen.trace import BY_KEY, Expr, Term, Tracer, ordered
from compiler.ir.graph import Op, Var
from compiler.ir.opdef import Pointwise, call, listed, reduced_axes
from compiler.ir.types import DType, Shape

__all__ = ["elementwise", "where", "write_pointwise"]

DIRECT = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "maximum": "Max", "minimum": "Min",
    "negative": "Neg", "absolute": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "reciprocal": "Reciprocal", "tanh": "Tanh", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "rint": "Round", "power": "Pow",
    "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "equal": "Equal",
    "greater_equal": "GreaterOrEqual", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "logical_not": "Not", "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
"""Functions of NumPy that are one node."""
IDENTITY_OF_INTEGERS = frozenset({"floor", "ceil", "rint", "trunc"})


def write_pointwise(nodes: Nodes, op: Op) -> None:
    """Write the nodes of a pointwise op. Raises Unsupported for a function that ONNX lacks."""
    defn = cast(Pointwise, op.defn)
    types = defn.types_of(op.inputs)
    views = defn.views(types)
    tracer = Tracer()
    inputs = {
        slot: defn.slots[slot].hold([
            _computable(tracer, tracer.leaf(var, _view(views, slot, i, var), var.type.dtype))
            for i, var in enumerate(vars)
        ])
        for slot, vars in op.inputs.items()
        if slot in defn.slots
    }  # fmt: skip
    results = defn.named(call(defn, "compute", inputs, tracer))
    aligned = defn.output_views(types)
    written = _Expressions(nodes)
    for slot, vars in op.outputs.items():
        for var, result in zip(vars, listed(results[slot]), strict=True):
            written.store(tracer, var, result, aligned.get(slot))


def _view(views: dict[str, Shape], slot: str, index: int, var: Var) -> Shape:
    return views.get(slot) or views.get(f"{slot}.{index}") or var.type.shape


def _computable(tracer: Tracer, leaf: Expr) -> Expr:
    """Bfloat16 is computed in float32, as everywhere in the compiler."""
    return tracer.cast(leaf, DType.FP32) if leaf.dtype is DType.BF16 else leaf


class _Expressions:
    """Writes the parts of expressions, each once."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.names: dict[Expr, str] = {}

    def store(self, tracer: Tracer, var: Var, result: Any, view: Shape | None) -> None:
        """Write a result in the type and shape of its value."""
        if not isinstance(result, Expr):
            result = tracer.full(result, var.type.shape, var.type.dtype)
        wanted = var.type.shape if view is None else view
        axes = reduced_axes(result.shape, wanted)
        result = tracer.reduce("sum", result, axes, keepdims=True) if axes else result
        expr = tracer.cast(result, var.type.dtype)
        for part in ordered(expr, self.names):
            self.names[part] = self._part(part)
        name = self.names[expr]
        bound = self.nodes.bind(var)
        if expr.shape != var.type.shape:
            self.nodes.add("Reshape", [name, self.nodes.target(var.type.shape)], bound)
        elif not self._rename(name, bound, expr):
            self.nodes.add("Identity", [name], bound)

    def _rename(self, name: str, bound: str, expr: Expr) -> bool:
        """Let the last node that was written have the result's name; False if another read it."""
        last = self.nodes.nodes[-1] if self.nodes.nodes else None
        if expr.is_leaf or last is None or list(last.output) != [name]:
            return False
        last.output[0] = bound
        self.names[expr] = bound
        return True

    def _part(self, part: Expr) -> str:
        if part.is_leaf:
            return self._leaf(part)
        if part.fn == BY_KEY:
            raise Unsupported("random numbers")
        if part.fn == "full":
            return self._full(part)
        if part.fn == "astype":
            (source,) = part.parts()
            return self.nodes.cast(self.names[source], part.dtype)
        if part.fn == "where":
            condition, *sides = part.args
            operands = [self._operand(side, part.dtype) for side in sides]
            return where(self.nodes, part.dtype, self._operand(condition, DType.BOOL), *operands)
        if part.fn.startswith("reduce_"):
            return self._reduced(part)
        return elementwise(self.nodes, part, self._operand)

    def _leaf(self, part: Expr) -> str:
        var = cast(Var, part.extra)
        name = self.nodes.name(var)
        if part.shape == var.type.shape:
            return name
        return self.nodes.add("Reshape", [name, self.nodes.target(part.shape)])

    def _full(self, part: Expr) -> str:
        value = self.nodes.scalar(cast(float, part.args[0]), part.dtype)
        return self.nodes.add("Expand", [value, self.nodes.shape(part.shape)])

    def _reduced(self, part: Expr) -> str:
        (source,), axes = part.parts(), [*cast("tuple[int, ...]", part.extra)]
        name = self.names[source]
        if part.fn == "reduce_sum":
            return self.nodes.add("ReduceSum", [name, self.nodes.constant(axes)], keepdims=1)
        kind = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}[part.fn]
        return self.nodes.add(kind, [name], axes=axes, keepdims=1)

    def _operand(self, term: Term, dtype: DType) -> str:
        """A part or a number as an operand of an element type."""
        if not isinstance(term, Expr):
            return self.nodes.scalar(term, dtype)
        name = self.names[term]
        return name if term.dtype is dtype else self.nodes.cast(name, dtype)


def elementwise(nodes: Nodes, part: Expr, operand: Callable[[Term, DType], str]) -> str:
    """An elementwise function of operands in the types that NumPy's loop has."""
    kinds: list[Any] = [
        arg.dtype.numpy if isinstance(arg, Expr) else type(arg) for arg in part.args
    ]
    loop = getattr(np, part.fn).resolve_dtypes((*kinds, None))
    types = [DType.of(kind) for kind in loop[:-1]]
    names = [operand(arg, dtype) for arg, dtype in zip(part.args, types, strict=True)]
    is_integer = not types[0].is_float
    if part.fn in IDENTITY_OF_INTEGERS and is_integer:
        return names[0]
    if part.fn in DIRECT:
        return nodes.add(DIRECT[part.fn], names)
    composed = COMPOSED.get(part.fn)
    if composed is None:
        raise Unsupported(f"ONNX has no function {part.fn}")
    return composed(nodes, types[0], *names)


def where(nodes: Nodes, dtype: DType, condition: str, a: str, b: str) -> str:
    """`Where`, of booleans by `And` and `Or`: ONNX Runtime lacks it for them."""
    if dtype is not DType.BOOL:
        return nodes.add("Where", [condition, a, b])
    sides = [nodes.add("And", [condition, a]), nodes.add("And", [nodes.add("Not", [condition]), b])]
    return nodes.add("Or", sides)


# ---- functions that are several nodes ------------------------------------------------------------


def _divided(nodes: Nodes, dtype: DType, a: str, b: str) -> str:
    return nodes.add("Div", [a, b])


def _floor_divided(nodes: Nodes, dtype: DType, a: str, b: str) -> str:
    """Rounded down: `Div` of integers rounds to zero."""
    if dtype.is_float:
        return nodes.add("Floor", [nodes.add("Div", [a, b])])
    rest = nodes.add("Mod", [a, b])  # with the sign of b
    return nodes.add("Div", [nodes.add("Sub", [a, rest]), b])


def _remainder(nodes: Nodes, dtype: DType, a: str, b: str) -> str:
    """With the sign of the divisor, as in Python."""
    if not dtype.is_float:
        return nodes.add("Mod", [a, b])
    rest = nodes.add("Mod", [a, b], fmod=1)
    zero = nodes.scalar(0, dtype)
    is_other_sign = nodes.add("Less", [nodes.add("Mul", [rest, b]), zero])
    return nodes.add("Where", [is_other_sign, nodes.add("Add", [rest, b]), rest])


def _log_to(base: float) -> Callable[..., str]:
    def log(nodes: Nodes, dtype: DType, x: str) -> str:
        return nodes.add("Mul", [nodes.add("Log", [x]), nodes.scalar(1 / math.log(base), dtype)])

    return log


def _expm1(nodes: Nodes, dtype: DType, x: str) -> str:
    """exp(x) - 1 = tanh(x / 2) · (exp(x) + 1), which is exact near zero; exp(x) if it is large."""
    one, half = nodes.scalar(1, dtype), nodes.scalar(0.5, dtype)
    power = nodes.add("Exp", [x])
    near = nodes.add("Tanh", [nodes.add("Mul", [x, half])])
    product = nodes.add("Mul", [near, nodes.add("Add", [power, one])])
    is_large = nodes.add("Greater", [x, nodes.scalar(20 if dtype is not DType.FP16 else 8, dtype)])
    return nodes.add("Where", [is_large, power, product])


def _log1p(nodes: Nodes, dtype: DType, x: str) -> str:
    """log(1 + x); x · log(1 + x) / ((1 + x) - 1) is exact where 1 + x rounds."""
    one = nodes.scalar(1, dtype)
    more = nodes.add("Add", [x, one])
    rounded = nodes.add("Sub", [more, one])
    log = nodes.add("Log", [more])
    is_plain = nodes.add("Or", [
        nodes.add("Equal", [rounded, nodes.scalar(0, dtype)]),
        nodes.add("Or", [nodes.add("IsInf", [more]), nodes.add("Equal", [rounded, x])]),
    ])  # fmt: skip
    small = nodes.add("Equal", [rounded, nodes.scalar(0, dtype)])
    exact = nodes.add(
        "Mul", [x, nodes.add("Div", [log, nodes.add("Where", [small, one, rounded])])]
    )
    return nodes.add("Where", [small, x, nodes.add("Where", [is_plain, log, exact])])


def _truncated(nodes: Nodes, dtype: DType, x: str) -> str:
    whole = nodes.add("Floor", [nodes.add("Abs", [x])])
    return nodes.add("Mul", [nodes.add("Sign", [x]), whole])


def _fmod(nodes: Nodes, dtype: DType, a: str, b: str) -> str:
    return nodes.add("Mod", [a, b], fmod=1)


def _not_equal(nodes: Nodes, dtype: DType, a: str, b: str) -> str:
    return nodes.add("Not", [nodes.add("Equal", [a, b])])


def _is_finite(nodes: Nodes, dtype: DType, x: str) -> str:
    either = nodes.add("Or", [nodes.add("IsInf", [x]), nodes.add("IsNaN", [x])])
    return nodes.add("Not", [either])


def _square(nodes: Nodes, dtype: DType, x: str) -> str:
    return nodes.add("Mul", [x, x])


COMPOSED: dict[str, Callable[..., str]] = {
    "divide": _divided, "floor_divide": _floor_divided, "remainder": _remainder, "fmod": _fmod,
    "not_equal": _not_equal, "isfinite": _is_finite, "square": _square, "expm1": _expm1,
    "log1p": _log1p, "log2": _log_to(2), "log10": _log_to(10), "trunc": _truncated,
}  # fmt: skip
"""Functions of NumPy that are several nodes: of the nodes, the operands' type and their names."""
