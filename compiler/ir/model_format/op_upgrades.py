"""Upgrade rules: converts programs of later releases (Paddle 2.x) to ops of 1.8.5.

Most of their programs contain the same ops: a `.pdmodel` is a `__model__` with additional fields.
Converted here, right after reading a program, are

- attributes of new types, 64-bit floats and scalars;
- new attributes with neutral values, which are removed;
- outputs that are no longer saved, such as the XShape of `reshape2`, which are added;
- zero-dimensional tensors, new in 2.5: in 1.8.5 these have one axis of size 1;
- axes of `squeeze` whose size is not 1, which later releases skip;
- the placeholder constant of a variable that a loop will write, of any shape: it gets the shape
  and element type with which the variable is declared.

A new attribute with any other value is kept and raises an error when its op is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from math import isnan
from typing import Any, cast

from numpy import iinfo

from compiler.errors import BadAttribute, UnknownOp
from compiler.ir.model_format.attributes import Opaque
from compiler.ir.model_format.protobuf import AttrType, Message
from compiler.ir.opdef import OpDef, find
from compiler.ir.opdef.slots import BOOKKEEPING
from compiler.ir.program import Block, OpDesc, Program, VarDesc
from compiler.ir.types import DType

__all__ = ["is_newer_release", "upgrade_program"]

_FIRST_LATER = 2_000_000
_ANY = object()
_FUSED = [f"fused_{what}_{slot}" for what in ("reshape", "transpose") for slot in ("X", "Y", "Out")]
_NEUTRAL: dict[str, Any] = {
    **{name: [] for name in _FUSED},
    "aligned": False,
    "always_adapt": False,
    "data_format": "NCHW",
    "entry": "none",
    "entry_config": "",
    "iou_aware": False,
    "iou_aware_factor": _ANY,
    "is_test": _ANY,
    "multi_precision": False,
    "pixel_offset": True,
    "print_tensor_layout": _ANY,
    "regularization_coeff": _ANY,
    "regularization_method": "",
    "rescale_grad": 1.0,
    "slot": 0,
    "table_class": "none",
    "use_global_beta_pow": False,
}
"""Attributes by name, with the value at which an op behaves as in 1.8.5."""

_LISTS = {
    DType.BOOL.code: "bool_values",
    DType.INT32.code: "int32_values",
    DType.FP32.code: "fp32_values",
    DType.FP64.code: "fp64_values",
    DType.INT64.code: "int64_values",
}
"""The attribute that holds the values of an element type in 1.8.5."""

_OMITTED_OUTPUTS = "XShape BatchCellPreAct BatchGate BatchHidden BatchResetHiddenPrev Norm".split()
"""Outputs that only gradients read; later releases save inference models without them."""

_SCALARS = {1: ("b", bool), 2: ("i", int), 3: ("r", float)}
_CONSTANTS = ("assign_value", "fill_constant")
_NO_VALUE = 1e27
"""Later releases write 1.77113e27, or more in 64 bits, for an undefined value."""
_ZERO: Mapping[str, Any] = {"value": 0.0, "str_value": "0"}


def is_newer_release(version: int) -> bool:
    """Return whether a program version is of a release after 1.8.5, or 0 (a development build).

    >>> is_newer_release(1_008_005), is_newer_release(2_003_000)
    (False, True)
    """
    return version >= _FIRST_LATER or version == 0


def upgrade_program(program: Program) -> None:
    """Convert a program of a later release to 1.8.5 in place; unregistered ops stay unchanged."""
    for block in program.blocks:
        for op in block.ops:
            definition = _definition(op.type)
            if definition is not None:
                _upgrade_attributes(op, definition)
                _name_outputs(block, op, definition)
                _upgrade_constant(block, op)
                _upgrade_squeeze(block, op)


def _definition(kind: str) -> type[OpDef] | None:
    try:
        return find(kind)
    except UnknownOp:
        return None


# ---- attributes ----


def _upgrade_attributes(op: OpDesc, definition: type[OpDef]) -> None:
    values = op.attrs.get("values")
    if isinstance(values, Opaque) and (name := _LISTS.get(_element_code(op))):
        op.attrs = {n: v for n, v in op.attrs.items() if n != "values"} | {name: values}
    attrs = {name: _plain(value) for name, value in op.attrs.items()}
    op.attrs = {n: v for n, v in attrs.items() if n in definition.attrs or not _is_neutral(n, v)}


def _is_neutral(name: str, value: Any) -> bool:
    if name not in _NEUTRAL or name in BOOKKEEPING:
        return False
    neutral = _NEUTRAL[name]
    return neutral is _ANY or value == neutral


def _plain(value: Any) -> Any:
    """Convert an attribute of a new type to plain numbers; return any other value unchanged."""
    if not isinstance(value, Opaque):
        return value
    message = value.message
    match message.one("type", int):
        case AttrType.FLOAT64:
            return message.one("float64", float)
        case AttrType.FLOAT64S:
            return list(message.many("float64s", float))
        case AttrType.SCALAR if message.has("scalar"):
            return _scalars(value, (message.one("scalar", Message),), single=True)
        case AttrType.SCALARS:
            return _scalars(value, message.many("scalars", Message))
        case _:
            return value


def _scalars(value: Opaque, scalars: tuple[Message, ...], single: bool = False) -> Any:
    """Convert scalars to Python numbers; return the attribute unchanged if one is complex."""
    if any(scalar.one("type", int) not in _SCALARS for scalar in scalars):
        return value
    numbers = [scalar.one(*_SCALARS[scalar.one("type", int)]) for scalar in scalars]
    return numbers[0] if single else numbers


# ---- missing outputs, and zero-dimensional tensors ----


def _name_outputs(block: Block, op: OpDesc, definition: type[OpDef]) -> None:
    """Add variables for required outputs that a later release omits."""
    outputs = definition.outputs()
    for slot in (outputs[name] for name in _OMITTED_OUTPUTS if name in outputs):
        if slot.optional or op.outputs.get(slot.name):
            continue
        stem = f"{next(iter(op.writes()), op.type)}.{slot.name}"
        names = (f"{stem}.{again}" if again else stem for again in count())
        name = next(name for name in names if block.lookup(name) is None)
        op.outputs = {**op.outputs, slot.name: [name]}
        block.add_var(name)


def _upgrade_constant(block: Block, op: OpDesc) -> None:
    shape = op.attrs.get("shape")
    if op.type not in _CONSTANTS or op.reads() or not _is_single(shape):
        return
    op.attrs = {**op.attrs, "shape": shape or [1]}
    var, code = block.lookup(next(iter(op.writes()), "")), _element_code(op)
    if var is not None and _is_placeholder(op, var):
        value = _value(op) if var.element.code == code else _converted(op, var.element)
        _fill(op, var.dims or (), var.element, value)
    elif op.type == "assign_value" and code == DType.FP64.code:
        _fill(op, op.attrs["shape"], DType.FP64, _value(op))


def _upgrade_squeeze(block: Block, op: OpDesc) -> None:
    """Remove the axes of a `squeeze` whose declared size is not 1, as later releases skip them.

    If none is left, the op becomes a `reshape` to the same shape.
    """
    x, axes = block.lookup(next(iter(op.inputs.get("X", ())), "")), op.attrs.get("axes")
    if op.type not in ("squeeze", "squeeze2") or x is None or not x.dims or not axes:
        return
    rank = len(x.dims)
    left = [axis for axis in axes if not -rank <= axis < rank or x.dims[axis] in (1, -1)]
    op.attrs = {**op.attrs, "axes": left}
    if not left:
        others = {name: value for name, value in op.attrs.items() if name != "axes"}
        op.type = op.type.replace("squeeze", "reshape")
        op.attrs = {**others, "shape": [0] * rank}


def _is_single(shape: Any) -> bool:
    return isinstance(shape, list) and shape == [1] * len(cast("list[Any]", shape))


def _is_placeholder(op: OpDesc, var: VarDesc) -> bool:
    """Return whether a constant is a placeholder: shape or dtype differ from its variable's."""
    if var.dims is None:
        return False
    return len(op.attrs["shape"]) != len(var.dims) or _element_code(op) != var.element.code


def _value(op: OpDesc) -> dict[str, Any]:
    """Return the value of a constant as in `fill_constant`; `{}` if it is not a scalar."""
    if op.type == "fill_constant":
        return {name: op.attrs[name] for name in _ZERO if name in op.attrs}
    listed = op.attrs.get(_LISTS.get(_element_code(op), ""))
    match listed:
        case [bool() | int() | float() as number]:
            return {"value": float(number), "str_value": repr(float(number))}
        case _:
            return {}


def _converted(op: OpDesc, dtype: DType) -> Mapping[str, Any]:
    """Convert the value of a constant to the element type of its variable; `{}` if there is none.

    Raises BadAttribute if it is not representable. The huge placeholder value becomes 0.
    """
    constant = _value(op) or (_ZERO if op.type == "fill_constant" else {})
    number = _number(constant)
    if number is None or (dtype.is_float and abs(number) < _NO_VALUE):
        return {} if number is None else constant
    if abs(number) >= _NO_VALUE:
        return _ZERO
    if number != int(number) or not _holds(dtype, int(number)):
        raise BadAttribute(
            f"{op.type}: the constant is {number!r}, which the type {dtype.text} of its variable "
            "cannot represent",
            source=op.source,
        )
    return {"value": number, "str_value": str(int(number))}


def _number(value: Mapping[str, Any]) -> float | None:
    """Return the number in attributes of `fill_constant`, the string first, or None."""
    try:
        number = float(value.get("str_value") or value.get("value", "none"))
    except (TypeError, ValueError):
        return None
    return None if isnan(number) else number


def _holds(dtype: DType, number: int) -> bool:
    if dtype is DType.BOOL:
        return number in (0, 1)
    limits = iinfo(dtype.numpy)
    return int(limits.min) <= number <= int(limits.max)


def _fill(op: OpDesc, shape: Sequence[int], dtype: DType, value: Mapping[str, Any]) -> None:
    if not value:
        return
    remaining = {name: attr for name, attr in op.attrs.items() if name not in _LISTS.values()}
    sizes = [max(size, 1) for size in shape]
    op.type, op.attrs = "fill_constant", {**remaining, "shape": sizes, "dtype": dtype.code, **value}


def _element_code(op: OpDesc) -> int:
    """Return the `VarType.Type` number of an op's `dtype`, or -1."""
    code = op.attrs.get("dtype")
    return code if isinstance(code, int) else -1
