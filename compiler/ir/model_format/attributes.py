"""Conversion of attribute values to and from `OpDesc.Attr`, which has twelve types.

A Python value does not determine its type: 1 may be an int or a float, and an empty list any list.
So the declaration of the op has precedence. Release 1.8.5 rejects an op whose attribute has the
wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from compiler.errors import CompileError, UnknownOp
from compiler.ir.model_format.protobuf import AttrType, Message, build
from compiler.ir.opdef import find
from compiler.ir.opdef.slots import Attr
from compiler.ir.program import BlockRef
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass

Item = int | float | str


@dataclass(frozen=True)
class Opaque:
    """An attribute of a type added after 1.8.5, preserved as raw message."""

    message: Message


@dataclass(frozen=True)
class _Form:
    """The field of `OpDesc.Attr` for a type: its name, its stored type, and the Python type."""

    field: str
    stored: type[int] | type[float] | type[str]
    item: type[int] | type[float] | type[str]
    many: bool = False


_FORMS = {
    AttrType.INT: _Form("i", int, int),
    AttrType.FLOAT: _Form("f", float, float),
    AttrType.STRING: _Form("s", str, str),
    AttrType.INTS: _Form("ints", int, int, many=True),
    AttrType.FLOATS: _Form("floats", float, float, many=True),
    AttrType.STRINGS: _Form("strings", str, str, many=True),
    AttrType.BOOLEAN: _Form("b", bool, bool),
    AttrType.BOOLEANS: _Form("bools", bool, bool, many=True),
    AttrType.BLOCK: _Form("block_idx", int, BlockRef),
    AttrType.LONG: _Form("l", int, int),
    AttrType.BLOCKS: _Form("blocks_idx", int, BlockRef, many=True),
    AttrType.LONGS: _Form("longs", int, int, many=True),
}
_LIST_KINDS = (
    (AttrType.BOOLEANS, {AttrType.BOOLEAN}),
    (AttrType.STRINGS, {AttrType.STRING}),
    (AttrType.BLOCKS, {AttrType.BLOCK}),
    (AttrType.INTS, {AttrType.INT}),
    (AttrType.LONGS, {AttrType.INT, AttrType.LONG}),
    (AttrType.FLOATS, {AttrType.INT, AttrType.LONG, AttrType.FLOAT}),
)
"""List types, narrowest first, and their possible item types."""
_FLOATS = "anchor_sizes aspect_ratios fixed_ratios fixed_sizes fp32_values max_sizes min_sizes"
_STRINGS = (
    "InputNames endpoints epmap ex_states functor_list grad_to_block_id op_role_var "
    "prefetch_var_name_to_block_id recv_varnames remote_varnames send_varnames "
    "skip_eager_deletion_vars slice_shapes slice_varnames sparse_grad_to_param states "
    "table_names varnames"
)
_EMPTY_LISTS: dict[str, AttrType] = {
    **dict.fromkeys(_FLOATS.split(), AttrType.FLOATS),
    **dict.fromkeys(_STRINGS.split(), AttrType.STRINGS),
}
"""Types of list attributes of 1.8.5 that may be empty and do not hold integers."""
_LONG = (
    "adam.min_row_size_to_use_multithread arg_max.axis arg_min.axis "
    "average_accumulates.max_average_window average_accumulates.min_average_window "
    "distributed_lookup_table.padding_idx eye.num_columns eye.num_rows "
    "filter_by_instag.out_val_if_empty hash.mod_by load.seek lookup_sparse_table.padding_idx "
    "lookup_table.padding_idx lookup_table_v2.padding_idx space_to_depth.blocksize"
)
_LONGS = (
    "assign_value.int64_values distributed_lookup_table.height_sections fake_init.shape "
    "fill_constant.shape gaussian_random.shape hierarchical_sigmoid.height_sections load.shape "
    "lookup_table.height_sections lookup_table_v2.height_sections nce.height_sections "
    "randint.shape recv_save.shape roll.dims roll.shifts send.sections "
    "split_selected_rows.height_sections uniform_random.shape"
)
_WIDE: dict[str, AttrType] = {
    **dict.fromkeys(_LONG.split(), AttrType.LONG),
    **dict.fromkeys(_LONGS.split(), AttrType.LONGS),
}
"""Attributes of 1.8.5 that are 64-bit whatever their value; also on gradient ops."""


def load_attr(message: Message) -> Any:
    """Return the value of an `OpDesc.Attr`; an `Opaque` for types that 1.8.5 does not have."""
    number = message.one("type", int)
    if number not in _FORMS:
        return Opaque(message)
    form = _FORMS[AttrType(number)]
    if form.many:
        return [form.item(item) for item in message.many(form.field, form.stored)]
    return form.item(message.one(form.field, form.stored))


def dump_attr(op: str, name: str, value: Any) -> Message:
    """Convert a value to an `OpDesc.Attr`, of the declared type or else by its Python type.

    Integers beyond 32 bits are LONG; floats are rounded to float32, as in 1.8.5. Raises
    CompileError, naming op and attribute, if the format has no type for the value.

    >>> dump_attr("randint", "low", 1 << 40).values["l"]
    1099511627776
    """
    if isinstance(value, Opaque):
        return value.message
    declared = _declared(op).get(name)
    plain = _plain(_as_declared(op, name, value, declared))
    kind = _WIDE.get(f"{op.removesuffix('_grad')}.{name}") or _kind(
        plain, _list_type(name, declared)
    )
    if kind is None:
        actual = f"{type(value).__name__} {value!r}"
        raise CompileError(
            f"{op}: attribute {name!r} is {actual}, which saved programs cannot represent"
        )
    form = _FORMS[kind]
    stored = [_stored(item, form) for item in plain] if form.many else _stored(plain, form)
    return build("OpDesc.Attr", name=name, type=kind, **{form.field: stored})


def _declared(op: str) -> Mapping[str, Attr[Any]]:
    try:
        return find(op).attrs
    except UnknownOp:
        return {}


def _as_declared(op: str, name: str, value: Any, declared: Attr[Any] | None) -> Any:
    if declared is None or isinstance(value, BlockRef):
        return value
    checked = declared.value(op, {name: value})
    return declared.kind(checked) if declared.kind in (int, float, str) else checked


def _plain(value: Any) -> Any:
    """Convert NumPy scalars and arrays, tuples and element types to Python numbers and lists."""
    if isinstance(value, np.ndarray | np.generic):
        return cast("np.ndarray[Any, Any]", value).tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    return value.code if isinstance(value, DType) else value


def _list_type(name: str, declared: Attr[Any] | None) -> AttrType | None:
    """Return the type of a list attribute whose items do not determine it."""
    default = declared.default if declared else None
    return _EMPTY_LISTS.get(name) or (_kind(default, None) if isinstance(default, list) else None)


def _kind(value: Any, list_type: AttrType | None) -> AttrType | None:
    """Return the type for a plain value; None if there is none, as for a list of lists."""
    if not isinstance(value, list):
        return _item_kind(value)
    kinds = {_item_kind(item) for item in cast("list[Any]", value)}
    if not kinds:
        return list_type or AttrType.INTS
    fitting = [kind for kind, items in _LIST_KINDS if kinds <= items]
    return list_type if list_type in fitting else next(iter(fitting), None)


def _item_kind(item: Any) -> AttrType | None:
    match item:
        case bool():
            return AttrType.BOOLEAN
        case BlockRef():
            return AttrType.BLOCK
        case int() if -(1 << 31) <= item < 1 << 31:
            return AttrType.INT
        case int() if -(1 << 63) <= item < 1 << 63:
            return AttrType.LONG
        case float():
            return AttrType.FLOAT
        case str():
            return AttrType.STRING
        case _:
            return None


def _stored(item: Any, form: _Form) -> Item:
    if form.stored is not float:
        return form.stored(item)
    with np.errstate(over="ignore"):  # overflow to infinity is intended
        return float(np.float32(item))
