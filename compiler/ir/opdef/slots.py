"""How an op class declares its slots and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import copysign, inf, isfinite
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import Size
from compiler.ir.opdef.attribute_bounds import ANY, FLOAT32, Accepted

T = TypeVar("T")

BOOKKEEPING = frozenset(
    "op_role op_role_var op_namescope op_callstack op_device op_reuses with_quant_attr use_cudnn "
    "use_mkldnn mkldnn_data_type use_quantizer is_mkldnn workspace_size_MB exhaustive_search "
    "fuse_relu fuse_brelu fuse_brelu_threshold fuse_activation fuse_alpha fuse_beta fuse_with_relu "
    "fuse_residual_connection fuse_relu_before_depthwise_conv force_fp32_output Scale_in Scale_out "
    "Scale_in_eltwise Scale_weights scale_x scale_y scale_out Scale_x Scale_y x_data_format "
    "y_data_format quantize_weights is_cpu is_calc_type use_addto quantization_type skip_quant "
    "out_threshold activation_bits quantize_weight_bits is_test "
    "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@ @ENABLE_CACHE_RUNTIME_CONTEXT@".split()
)
"""Attributes of the reference that say nothing of an op's meaning: kept, never read."""
QUANTIZER_NOTES = ("_quant_scale", ".min", ".max")
"""Ends of names that quantizers give attributes: what they saw of a variable, named before."""


GRAPH_ONLY = frozenset(
    "variable X_names Out_names whole_shape first_row row_step clip_norm share servers".split()
)
"""Attributes that the reference has not, which programs only record where they are given.

Converting a program to a graph sets `variable`, and those with the names in a slot.
"""


class HasAttributes(Protocol):
    """An op instance, as far as its attributes go."""

    attributes: dict[str, Any]


class Attr(Generic[T]):
    """A declared attribute; on an instance it reads as its value.

    `item` is the type of the items of a list, None where they are not checked. Floats are rounded
    to float32, as they are in a saved program.
    """

    def __init__(
        self, kind: type[T], default: T | None, accepted: Accepted = ANY, item: type | None = None
    ) -> None:
        self.kind = kind
        self.default = cast("T | None", _as_float32(default))
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
        """Its value among the given attributes.

        Raises BadAttribute where it is missing, of another type, or not accepted.
        """
        value = given.get(self.name)
        if value is None:
            return self._default(op)
        if self.kind is not list:
            return self._checked(op, value, self.kind)
        if not isinstance(value, list | tuple):
            raise self._wrong_type(op, value, list)
        items = cast("Sequence[Any]", value)
        return cast(T, [self._item(op, each, index) for index, each in enumerate(items)])

    def _default(self, op: str) -> T:
        if self.default is None:
            raise BadAttribute(f"{op} needs the attribute {self.name!r} ({self.kind.__name__})")
        return self.default

    def _item(self, op: str, value: Any, index: int) -> Any:
        if self.item is None:
            return value
        return self._checked(op, value, self.item, f"item {index} of ")

    def _checked(self, op: str, value: Any, kind: type[Any], where: str = "") -> Any:
        """A value, or an item of a list, in its declared type."""
        found = _convert(value, kind)
        if not isinstance(found, kind):
            raise self._wrong_type(op, value, kind, where)
        if not self.accepted.has(found):
            raise BadAttribute(
                f"{op}: {where}attribute {self.name!r} is {_short(found)}, "
                f"expected {self.accepted.expected(kind)}"
            )
        return _as_float32(found)

    def _wrong_type(self, op: str, value: Any, wanted: type, where: str = "") -> BadAttribute:
        got = type(value).__name__
        return BadAttribute(
            f"{op}: {where}attribute {self.name!r} is {got} {_short(value)}, not {wanted.__name__}"
        )


def _as_float32(value: Any) -> Any:
    """A number as the reference keeps FLOAT attributes; each item of a list."""
    if isinstance(value, list):
        return [_as_float32(item) for item in cast("list[Any]", value)]
    if not isinstance(value, float) or not isfinite(value):
        return value
    return copysign(inf, value) if abs(value) > FLOAT32 else float(np.float32(value))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _convert(value: Any, kind: type) -> Any:
    """Accept what means the same: 1 for 1.0, NumPy scalars, 0/1 for bool."""
    plain: Any = cast("np.generic[Any]", value).item() if isinstance(value, np.generic) else value
    if kind is int and isinstance(plain, int):
        return int(plain)
    if kind is float and isinstance(plain, int) and abs(plain) < 2**64:
        return float(plain)
    if kind is bool and isinstance(plain, int | float) and plain in (0, 1):
        return bool(plain)
    return plain


def attr(default: T, accepted: Accepted = ANY) -> Attr[T]:
    """An attribute with a default, whose type is the default's."""
    return Attr(type(default), default, accepted, _item_type(default))


def _item_type(default: Any) -> type | None:
    """The type of the items of a list that has some."""
    items = cast("list[Any]", default) if isinstance(default, list) else []
    kinds: list[type] = [each.__class__ for each in items[:1]]
    return kinds[0] if kinds else None


def required(kind: type[T], accepted: Accepted = ANY) -> Attr[T]:
    """An attribute of this type that must be given."""
    return Attr(kind, None, accepted)


def attr_list(item: type[T], accepted: Accepted = ANY) -> Attr[list[T]]:
    """A list of items of this type, empty unless it is given."""
    return Attr(cast("type[list[T]]", list), list[T](), accepted, item)


def required_list(item: type[T], accepted: Accepted = ANY) -> Attr[list[T]]:
    """A list of items of this type that must be given."""
    return Attr(cast("type[list[T]]", list), None, accepted, item)


@dataclass(frozen=True)
class Slot:
    """A declared input or output.

    `optional` may stay empty; `many` holds a list; `inplace` names the input whose storage an
    output may take over; `shape_only` inputs are read for their shape and not their data;
    `no_grad` inputs have no gradient (labels, running statistics).

    A companion goes with what stands in the slot `of`, and no program mentions it: its LoD
    (`"lod"`, the offsets of every level), its row numbers where it is sparse (`"rows"`), or what
    the variable held before (`"previous"`). A token (`"order"`) goes with the op, not with a slot.
    `needed` ones must be there when a graph is made.

    What stands in an `on_host` slot is in the host's memory though the op runs on a device: it
    tells how many elements there will be, or which kernels to launch. LoD always is.

    An output has the LoD of the op's first input where both have as many rows, unless `shares_lod`
    is False.
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

    def hold(self, items: Sequence[T]) -> list[T] | T | None:
        """Items as the slot's value: a list where it holds many, else the only one, or None."""
        return list(items) if self.many else next(iter(items), None)


@dataclass(frozen=True)
class Share:
    """Two values of an op of which one is part of the other, and may lie in its memory.

    Each is a slot and a place in it. `part` is `size` places of `axis` of `whole`, from `start` on;
    None for all its elements, in their order. A part that `stays` lies there though that keeps the
    whole alive for longer, for its other parts are needed as long; it is aligned for any device.
    """

    whole: tuple[str, int]
    part: tuple[str, int]
    axis: int = 0
    start: Size = 0
    size: Size | None = None
    stays: bool = False


@dataclass(frozen=True)
class Again:
    """An op that makes outputs of another one again.

    `inputs` names, for each of its input slots, a slot of the other op, input or output; `outputs`,
    for each output slot of the other op that it makes, its own.
    """

    kind: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    attrs: Mapping[str, Any]


def listed(value: Any) -> list[Any]:
    """The items of a slot's value: those of a list, or the only one."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def reads(
    *,
    optional: bool = False,
    many: bool = False,
    shape_only: bool = False,
    no_grad: bool = False,
    on_host: bool = False,
) -> Slot:
    """Declare an input slot."""
    return Slot("", False, optional, many, "", shape_only, no_grad, on_host=on_host)


def writes(
    *,
    optional: bool = False,
    many: bool = False,
    inplace: str = "",
    on_host: bool = False,
    shares_lod: bool = True,
) -> Slot:
    """Declare an output slot; `inplace` names the input it may overwrite (`Param`)."""
    return Slot("", True, optional, many, inplace, on_host=on_host, shares_lod=shares_lod)


def reads_lod(of: str, *, optional: bool = False) -> Slot:
    """Declare that an op reads the LoD of what stands in a slot.

    The value is a list of int64 offset arrays, `[count + 1]` each, the outermost level first; for a
    slot that takes many, a list with the innermost offsets of each.
    """
    return Slot(
        optional=True, many=True, no_grad=True, companion="lod", of=of, needed=not optional,
        on_host=True,
    )  # fmt: skip


def writes_lod(of: str) -> Slot:
    """Declare that an op says the LoD of an output: a list of offset arrays, `[]` for none."""
    return Slot(is_output=True, optional=True, many=True, companion="lod", of=of, on_host=True)


def reads_rows(of: str) -> Slot:
    """Declare that an op knows sparse values in a slot: int64 row numbers, None where dense."""
    return Slot(optional=True, no_grad=True, companion="rows", of=of)


def writes_rows(of: str) -> Slot:
    """Declare that an output may be sparse: it is where `infer` gives this slot a type."""
    return Slot(is_output=True, optional=True, companion="rows", of=of)


def reads_order() -> Slot:
    """Declare that an op waits for the collective before it: a token, None for the first."""
    return Slot(optional=True, no_grad=True, companion="order", on_host=True)


def writes_order() -> Slot:
    """Declare that the next collective waits for this op: a token."""
    return Slot(is_output=True, optional=True, companion="order", on_host=True)


def reads_previous(of: str) -> Slot:
    """Declare that an op reads what a variable it writes held before; None where it held nothing.

    The variable is the one in output slot `of`.
    """
    return Slot(optional=True, no_grad=True, companion="previous", of=of)


def matched(slots: dict[str, Slot]) -> dict[str, Slot]:
    """Row numbers come in a list where the values do."""
    many = {name for name, slot in slots.items() if slot.many and not slot.companion}
    return {
        name: replace(slot, many=True) if slot.companion == "rows" and slot.of in many else slot
        for name, slot in slots.items()
    }
