"""Declarations of slots and attributes in op classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import copysign, inf, isfinite
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import Size
from compiler.ir.opdef.attribute_bounds import ANY, FLOAT32, Accepted
from compiler.support.dataclass import dataclass

T = TypeVar("T")

BOOKKEEPING = frozenset(
    "op_role op_role_var op_namescope op_callstack op_device op_reuses with_quant_attr use_cudnn "
    "use_mkldnn mkldnn_data_type use_quantizer is_mkldnn workspace_size_MB exhaustive_search "
    "fuse_relu fuse_brelu fuse_brelu_threshold fuse_activation fuse_alpha fuse_beta fuse_with_relu "
    "fuse_residual_connection fuse_relu_before_depthwise_conv force_fp32_output Scale_in Scale_out "
    "Scale_in_eltwise Scale_weights scale_x scale_y scale_out Scale_x Scale_y x_data_format "
    "y_data_format quantize_weights is_cpu is_calc_type use_addto quantization_type skip_quant "
    "out_threshold out_min out_max activation_bits quantize_weight_bits is_test "
    "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@ @ENABLE_CACHE_RUNTIME_CONTEXT@".split()
)
"""Attributes of the reference that every op accepts, and stores, without declaring them.

An op ignores those that it does not declare. `is_test` is among them because saved models have it
on ops that compute the same without it, such as relu; batch norm and others declare and read it.
"""
QUANTIZER_SUFFIXES = ("_quant_scale", ".min", ".max")
"""Suffixes of attributes that quantizers add to record statistics of a variable."""


GRAPH_ONLY = frozenset(
    "variable X_names Out_names whole_shape first_row row_step clip_norm share servers".split()
)
"""Attributes that the reference does not have; programs store them only if they are set.

`variable` and the lists of names are set when a program is converted to a graph.
"""


class HasAttributes(Protocol):
    """An op instance, restricted to its attributes."""

    attributes: dict[str, Any]


class Attr(Generic[T]):
    """A descriptor that declares an attribute; on an instance it returns the attribute's value.

    `item` is the type of list items, None if they are not checked. Floats are rounded to float32,
    as in a saved program.
    """

    def __init__(
        self, kind: type[T], default: T | None, accepted: Accepted = ANY, item: type | None = None
    ) -> None:
        self.kind = kind
        self.default = cast("T | None", as_float32(default))
        self.accepted = accepted
        self.item = item
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Attr[T]: ...
    @overload
    def __get__(self, instance: HasAttributes, owner: type) -> T: ...
    def __get__(self, instance: HasAttributes | None, owner: type) -> Attr[T] | T:
        return self if instance is None else cast(T, instance.attributes[self.name])

    def value(self, op: str, given: Mapping[str, Any]) -> T:
        """Return the attribute's checked value, or its default.

        Raises BadAttribute if it is missing, has the wrong type, or is not accepted.
        """
        value = given.get(self.name)
        if value is None:
            return self._default(op)
        kind = self.kind
        if kind is not list:
            if type(value) is kind and self.accepted.has(value):
                return as_float32(value) if kind is float else cast(T, value)
            return self._checked(op, value, kind)
        if not isinstance(value, list | tuple):
            raise self._wrong_type(op, value, list)
        items = cast("Sequence[Any]", value)
        if self._has_plain(items):
            return cast(T, [*items])
        return cast(T, [self._item(op, item, index) for index, item in enumerate(items)])

    def _has_plain(self, items: Sequence[Any]) -> bool:
        """Return whether items are accepted as they are; floats are rounded first."""
        item, has = self.item, self.accepted.has
        plain = item is not None and item is not float
        return plain and all(type(value) is item and has(value) for value in items)

    def _default(self, op: str) -> T:
        if self.default is None:
            raise BadAttribute(f"{op} needs the attribute {self.name!r} ({self.kind.__name__})")
        return self.default

    def _item(self, op: str, value: Any, index: int) -> Any:
        if self.item is None:
            return value
        return self._checked(op, value, self.item, f"item {index} of ")

    def _checked(self, op: str, value: Any, kind: type[Any], where: str = "") -> Any:
        """Convert a value, or an item of a list, to its declared type and check it."""
        converted = _convert(value, kind)
        if not isinstance(converted, kind):
            raise self._wrong_type(op, value, kind, where)
        if not self.accepted.has(converted):
            raise BadAttribute(
                f"{op}: {where}attribute {self.name!r} is {_short(converted)}, "
                f"expected {self.accepted.expected(kind)}"
            )
        return as_float32(converted)

    def _wrong_type(self, op: str, value: Any, wanted: type, where: str = "") -> BadAttribute:
        got = type(value).__name__
        return BadAttribute(
            f"{op}: {where}attribute {self.name!r} is {got} {_short(value)}, not {wanted.__name__}"
        )


def as_float32(value: Any) -> Any:
    """Round a number, or each item of a list, as the reference stores FLOAT attributes."""
    if isinstance(value, list):
        return [as_float32(item) for item in cast("list[Any]", value)]
    if not isinstance(value, float) or not isfinite(value):
        return value
    return copysign(inf, value) if abs(value) > FLOAT32 else float(np.float32(value))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _convert(value: Any, kind: type) -> Any:
    """Convert equivalent values to a type: 1 to 1.0, NumPy scalars, 0/1 to bool."""
    plain: Any = cast("np.generic[Any]", value).item() if isinstance(value, np.generic) else value
    if kind is int and isinstance(plain, int):
        return int(plain)
    if kind is float and isinstance(plain, int) and abs(plain) < 2**64:
        return float(plain)
    if kind is bool and isinstance(plain, int | float) and plain in (0, 1):
        return bool(plain)
    return plain


def attr(default: T, accepted: Accepted = ANY) -> Attr[T]:
    """Declare an attribute with a default, which also determines its type."""
    return Attr(type(default), default, accepted, _item_type(default))


def _item_type(default: Any) -> type | None:
    """Return the type of the first item of a list; None for an empty list or no list."""
    items = cast("list[Any]", default) if isinstance(default, list) else []
    kinds: list[type] = [item.__class__ for item in items[:1]]
    return kinds[0] if kinds else None


def required(kind: type[T], accepted: Accepted = ANY) -> Attr[T]:
    """Declare a required attribute of a type."""
    return Attr(kind, None, accepted)


def attr_list(item: type[T], accepted: Accepted = ANY) -> Attr[list[T]]:
    """Declare a list attribute with items of a type, empty by default."""
    return Attr(cast("type[list[T]]", list), list[T](), accepted, item)


def required_list(item: type[T], accepted: Accepted = ANY) -> Attr[list[T]]:
    """Declare a required list attribute with items of a type."""
    return Attr(cast("type[list[T]]", list), None, accepted, item)


@dataclass(frozen=True)
class Slot:
    """A declared input or output.

    `optional` slots may be empty; `many` slots hold a list; `inplace` is the input whose storage an
    output may reuse; `shape_only` inputs are read for their shape, not their data; `no_grad` inputs
    have no gradient (labels, running statistics).

    A companion slot belongs to the slot `of` and is not mentioned by programs: the LoD of a value
    (`"lod"`, the offsets of every level), the row indices of a sparse gradient (`"rows"`), or the
    previous value of the variable (`"previous"`). A token (`"order"`) belongs to the op. `needed`
    companions must exist when a graph is built.

    The integers of `sizes_only` inputs determine sizes of the outputs and nothing else: a kernel
    whose output sizes are known does not read them.

    Values in `on_host` slots are in host memory even if the op runs on a device: they determine
    sizes or which kernels to launch. LoD is always on the host; it covers all rows, unless it
    `may_end_early`.

    An output has the LoD of the op's first input if both have the same number of rows, unless
    `shares_lod` is False. With `shares_level` it is recorded with that many levels anyway.
    """

    name: str = ""
    is_output: bool = False
    optional: bool = False
    many: bool = False
    inplace: str = ""
    shape_only: bool = False
    no_grad: bool = False
    companion: str = ""
    of: str = ""
    needed: bool = False
    on_host: bool = False
    shares_lod: bool = True
    shares_level: bool = False
    sizes_only: bool = False
    may_end_early: bool = False

    def hold(self, items: Sequence[T]) -> list[T] | T | None:
        """Return the slot's value: a list for a `many` slot, else the only item or None."""
        return list(items) if self.many else next(iter(items), None)


@dataclass(frozen=True)
class Share:
    """A declared alias: one operand may be a view of a part of another operand.

    Each operand is a slot and an index. `part` is `whole[..., start:start + size, ...]` along
    `axis`, or all elements in order if `size` is None. A part that `stays` is kept as a view even
    if that extends the lifetime of the whole, because its other parts are needed as long; it is
    aligned for any device.
    """

    whole: tuple[str, int]
    part: tuple[str, int]
    axis: int = 0
    start: Size = 0
    size: Size | None = None
    stays: bool = False


@dataclass(frozen=True)
class RecomputeRule:
    """An op that recomputes outputs of another one (rematerialisation).

    `inputs` maps its input slots to slots (inputs or outputs) of the other op; `outputs` maps
    output slots of the other op to its own.
    """

    kind: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    attrs: Mapping[str, Any]


def listed(value: Any) -> list[Any]:
    """Return a slot's value as a list."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def reads(
    *,
    optional: bool = False,
    many: bool = False,
    shape_only: bool = False,
    no_grad: bool = False,
    on_host: bool = False,
    sizes_only: bool = False,
) -> Slot:
    """Declare an input slot."""
    return Slot(
        "", False, optional, many, "", shape_only, no_grad, on_host=on_host, sizes_only=sizes_only
    )


def writes(
    *,
    optional: bool = False,
    many: bool = False,
    inplace: str = "",
    on_host: bool = False,
    shares_lod: bool = True,
    shares_level: bool = False,
) -> Slot:
    """Declare an output slot; `inplace` names the input it may overwrite (`Param`)."""
    return Slot(
        "", True, optional, many, inplace, on_host=on_host, shares_lod=shares_lod,
        shares_level=shares_level,
    )  # fmt: skip


def reads_lod(of: str, *, optional: bool = False, may_end_early: bool = False) -> Slot:
    """Declare an input for the LoD of the value in a slot.

    With `may_end_early`, rows after the last sequence are allowed, as `ctc_align` leaves one.

    The value is a list of int64 offset arrays, `[count + 1]` each, outermost level first; for a
    `many` slot, a list with the innermost offsets of each item.
    """
    return Slot(
        optional=True, many=True, no_grad=True, companion="lod", of=of, needed=not optional,
        on_host=True, may_end_early=may_end_early,
    )  # fmt: skip


def writes_lod(of: str) -> Slot:
    """Declare an output for the LoD of another output: a list of offset arrays, `[]` for none."""
    return Slot(is_output=True, optional=True, many=True, companion="lod", of=of, on_host=True)


def reads_rows(of: str) -> Slot:
    """Declare an input for int64 row indices of sparse values in a slot; None for dense values."""
    return Slot(optional=True, no_grad=True, companion="rows", of=of)


def writes_rows(of: str) -> Slot:
    """Declare an output for row indices; the value is sparse if `infer` returns a type for it."""
    return Slot(is_output=True, optional=True, companion="rows", of=of)


def reads_token() -> Slot:
    """Declare a token input: the op runs after the preceding collective; None for the first."""
    return Slot(optional=True, no_grad=True, companion="order", on_host=True)


def writes_token() -> Slot:
    """Declare a token output: the next collective runs after this op."""
    return Slot(is_output=True, optional=True, companion="order", on_host=True)


def reads_previous(of: str) -> Slot:
    """Declare an input for the old value of the variable in output slot `of`, or None."""
    return Slot(optional=True, no_grad=True, companion="previous", of=of)


def matched(slots: dict[str, Slot]) -> dict[str, Slot]:
    """Make the row-index slots of `many` slots hold lists as well."""
    many = {name for name, slot in slots.items() if slot.many and not slot.companion}
    return {
        name: replace(slot, many=True) if slot.companion == "rows" and slot.of in many else slot
        for name, slot in slots.items()
    }
