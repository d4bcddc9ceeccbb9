"""Types of arguments that users write in several ways, for annotations.

Layers check their own arguments of these types: `typed` accepts anything for an alias that is
marked `UNCHECKED`. Types of variables and their names are in `fluid.recording.variable`, those of
parameter attributes in `fluid.param_attr`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np

from compiler.ir.program import VarDesc
from compiler.ir.types import Array, DType
from fluid.recording.arguments import UNCHECKED

__all__ = [
    "Array",
    "AttributeValue",
    "Attributes",
    "DTypeLike",
    "Feed",
    "IntOrInts",
    "Reader",
    "ShapeLike",
    "SlotValue",
    "Slots",
]

DTypeLike: TypeAlias = Annotated[str | np.dtype[np.generic] | type[object] | int | DType, UNCHECKED]
"""An element type: its NumPy name, dtype or scalar type, or a `VarType` (which is an int)."""

ShapeLike: TypeAlias = Annotated[Sequence[int] | Array, UNCHECKED]
"""Sizes of all axes; -1 for unknown sizes."""

IntOrInts: TypeAlias = Annotated[int | Sequence[int], UNCHECKED]
"""A number for all axes, or one for each."""

SlotValue: TypeAlias = Annotated[VarDesc | str | Sequence[VarDesc | str] | None, UNCHECKED]
"""The content of an op's slot: a variable, its name, or a list of them; None for no content."""

Slots: TypeAlias = Mapping[str, SlotValue]
"""The inputs or outputs of an op, by slot."""

Attributes: TypeAlias = Mapping[str, object]
"""The attributes of an op to append: numbers, strings, blocks, arrays, or lists of them."""

AttributeValue: TypeAlias = Any
"""An attribute that is read from an op; its declaration decides the type."""

Feed: TypeAlias = Mapping[str, object]
"""Values to feed, by variable: arrays, LoDTensors, or nested lists of numbers."""


class Reader(Protocol):
    """A reader whose batches are the values of variables."""

    drop_last: bool

    @property
    def names(self) -> Sequence[str]:
        """The names of the variables."""
        ...

    def next_batch(self) -> Sequence[object]:
        """The next value of each variable; EOFException after the last."""
        ...
