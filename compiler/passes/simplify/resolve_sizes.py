"""Sizes that a program computes from shapes: they become expressions of the sizes of feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias, cast

from compiler.errors import CompileError, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import OpDef, listed
from compiler.ir.types import DType, Shape, TensorType
from compiler.passes.base import Context, Fact, Pass
from compiler.support.dataclass import dataclass

Numbers: TypeAlias = "tuple[Size, ...]"
"""The elements of a small integer tensor, in order."""

LONGEST = 16
"""Most elements of a tensor of sizes."""


class ResolveSizes(Pass):
    """s = shape(x); y: f32[?, 8] = reshape(z, s[0], 8)  =  y: f32[N, 8] = reshape(z, [-1, 8]).

    Follows integers from shapes and constants through slices, concatenations and arithmetic. A
    reshape gets them as its attribute; another op keeps its inputs, but its outputs have sizes that
    are known when feeds are. If sizes that must be equal are not provably so, nothing changes.
    """

    name = "resolve_sizes"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Infer all sizes, then write them into the graph."""
        ops = g.ops() if any(var.type.is_open for var in g.vars()) else []
        inference = _Inference({var.overwrites for var in g.vars()})
        for op in ops:
            try:
                inference.visit(op)
            except (CompileError, ArithmeticError, ValueError) as error:
                ctx.note_missed(self.name, op, f"its sizes may differ: {error}")
                return
        inference.apply(g)


@dataclass
class _Inference:
    """Types and values that are known so far, and reshapes with their attribute.

    Those in `overwritten` share their storage with later versions, and keep their types.
    """

    overwritten: set[Var | None]
    types: dict[Var, TensorType] = field(default_factory=dict[Var, TensorType])
    values: dict[Var, Numbers] = field(default_factory=dict[Var, Numbers])
    reshapes: dict[Op, list[int]] = field(default_factory=dict[Op, list[int]])

    def visit(self, op: Op) -> None:
        """Infer the outputs of one op."""
        if op.body is not None:
            return
        if any(self.type(var).is_open or var in self.types for var in (*op.reads(), *op.writes())):
            self._refine(op)
        outputs = op.outputs.get("Y" if op.kind == "stack" else "Out", [])
        values = self._evaluated(op) if len(outputs) == 1 and _holds_sizes(outputs[0]) else None
        if values is not None and len(values) <= LONGEST and UNKNOWN not in values:
            self.values[outputs[0]] = values

    def type(self, var: Var) -> TensorType:
        """The type of a var, with the sizes that were found."""
        return self.types.get(var, var.type)

    def _refine(self, op: Op) -> None:
        """Replace the unknown sizes of an op's outputs."""
        for slot, types in self._inferred(op).items():
            for var, type in zip(op.outputs.get(slot, ()), listed(types), strict=False):
                if type is not None and type.rank == var.type.rank and not var.type.is_array:
                    self._refine_var(var, type)

    def _refine_var(self, var: Var, type: TensorType) -> None:
        """Replace the unknown sizes of a var; ShapeError if known ones are not those of a type."""
        pairs = [*zip(var.type.shape, type.shape, strict=True)]
        if any(a != b and UNKNOWN not in (a, b) for a, b in pairs):
            raise ShapeError(f"{var!r} would be {type}")
        if var.type.is_open and var.overwrites is None and var not in self.overwritten:
            self.types[var] = var.type.with_shape([b if a == UNKNOWN else a for a, b in pairs])

    def _inferred(self, op: Op) -> Mapping[str, Any]:
        slots, wanted = op.defn.slots, self._wanted(op)
        slot_types = {slot: [self.type(var) for var in vars] for slot, vars in op.inputs.items()}
        types = op.defn.infer_types(
            {s: slots[s].hold(types_of_slot) for s, types_of_slot in slot_types.items()}
        )
        if wanted is None:
            return types
        x, out = slot_types["X"][0], cast("Any", op.defn).resized(slot_types["X"][0], wanted)
        if op.kind in _RESHAPES:
            if out.numel != x.numel:
                return types  # they may be equal at run time
            if shape := _attribute(x.shape, wanted):
                self.reshapes[op] = shape
        return {**types, "Out": out}

    def _wanted(self, op: Op) -> Numbers | None:
        """The sizes that the inputs of an op ask for; None without any, or if one is unknown."""
        slots: tuple[str, ...] = getattr(op.defn, "size_inputs", ())
        slot = next((slot for slot in slots if op.inputs.get(slot)), "")
        operands = [self.values.get(var) for var in op.inputs.get(slot, ())]
        values = [operand for operand in operands if operand is not None]
        sizes = tuple(size for value in values for size in value)
        return sizes if sizes and len(values) == len(operands) else None

    def _evaluated(self, op: Op) -> Numbers | None:
        """The integers that an op computes, None if they are unknown."""
        if op.kind == "shape":
            return self.type(op["Input"]).shape
        if not {*op.inputs} <= {"X", "Y", "Input"}:
            return None  # other inputs are axes, starts and the like
        operands = [self.values.get(var) for var in op.reads()]
        values = [operand for operand in operands if operand is not None]
        evaluate = _VALUES.get(op.kind) if len(values) == len(operands) else None
        return evaluate(op.defn, values) if evaluate is not None else None

    def apply(self, g: Graph) -> None:
        """Write types and attributes into the graph."""
        for var, type in self.types.items():
            g.retype(var, type)
        for op, shape in self.reshapes.items():
            attrs = {**op.attrs, "shape": shape}
            g.replace(op, op.kind, {"X": op.inputs["X"]}, op.outputs, attrs)


_RESHAPES = frozenset({"reshape", "reshape2"})


def _holds_sizes(var: Var) -> bool:
    integer = var.type.dtype in (DType.INT32, DType.INT64)
    return integer and var.role == "temp" and not var.type.is_array and var.overwrites is None


def _attribute(given: Shape, wanted: Numbers) -> list[int]:
    """The `shape` attribute of a reshape: 0 for the size of X at an axis, -1 for another symbol.

    Empty if there are several of those.
    """
    before: list[Size | None] = [*given, *[None] * len(wanted)]
    sizes = [
        size if isinstance(size, int) else 0 if size == before[axis] else -1
        for axis, size in enumerate(wanted)
    ]
    return sizes if sizes.count(-1) < 2 else []


# ---- integers -----------------------------------------------------------------------------------


def _same(defn: OpDef, given: Sequence[Numbers]) -> Numbers | None:
    return given[0] if len(given) == 1 else None


def _joined(defn: OpDef, given: Sequence[Numbers]) -> Numbers | None:
    single = defn.kind == "concat" or all(len(value) == 1 for value in given)
    axis = defn.attributes["axis"]
    return tuple(size for value in given for size in value) if axis == 0 and single else None


def _sliced(defn: OpDef, given: Sequence[Numbers]) -> Numbers | None:
    axes, starts, ends = (defn.attributes[name] for name in ("axes", "starts", "ends"))
    if axes != [0] or len(given) != 1:
        return None
    last = (starts, ends) == ([-1], [0])
    return given[0][slice(starts[0], None if last else ends[0])]


def _filled(defn: OpDef, given: Sequence[Numbers]) -> Numbers | None:
    shape, value = defn.attributes["shape"], defn.attributes["value"]
    text = defn.attributes["str_value"]
    whole = not given and len(shape) == 1 and 0 < shape[0] <= LONGEST
    if not whole or value != int(value) or text.strip(" 0123456789-"):
        return None
    return (int(text.strip() or value),) * shape[0]


def _literal(defn: OpDef, given: Sequence[Numbers]) -> Numbers | None:
    attributes = defn.attributes
    codes = {DType.INT32.code: "int32_values", DType.INT64.code: "int64_values"}
    return tuple(attributes[codes[attributes["dtype"]]])


def _scaled(defn: OpDef, given: Sequence[Numbers]) -> Numbers | None:
    scale, bias = defn.attributes["scale"], defn.attributes["bias"]
    if len(given) != 1 or scale != int(scale) or bias != int(bias):
        return None
    after = defn.attributes["bias_after_scale"]
    return tuple(
        size * int(scale) + int(bias) if after else (size + int(bias)) * int(scale)
        for size in given[0]
    )


def _arithmetic(compute: Callable[[Any, Any], Size]) -> Callable[..., Numbers | None]:
    def evaluate(defn: OpDef, given: Sequence[Numbers]) -> Numbers | None:
        if len(given) != 2 or len({len(value) for value in given}) != 1:
            return None
        return tuple(compute(a, b) for a, b in zip(*given, strict=True))

    return evaluate


_VALUES: Mapping[str, Callable[[OpDef, Sequence[Numbers]], Numbers | None]] = {
    "assign": _same, "cast": _same, "squeeze": _same, "squeeze2": _same,
    "unsqueeze": _same, "unsqueeze2": _same, "reshape": _same, "reshape2": _same,
    "concat": _joined, "stack": _joined, "slice": _sliced, "fill_constant": _filled,
    "assign_value": _literal, "scale": _scaled,
    "elementwise_add": _arithmetic(lambda a, b: a + b),
    "elementwise_sub": _arithmetic(lambda a, b: a - b),
    "elementwise_mul": _arithmetic(lambda a, b: a * b),
    "elementwise_floordiv": _arithmetic(lambda a, b: a // b),
}  # fmt: skip
"""How ops compute the integers of `Out` from those of their inputs."""
