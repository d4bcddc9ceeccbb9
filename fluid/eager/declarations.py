"""What scripts pass to `VarBase`: an array, or a type and a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from compiler.ir.types import Array, DType
from fluid import unique_name
from fluid.recording.arguments import is_numpy
from fluid.recording.variable import VarType, convert_np_dtype_to_dtype_

__all__ = ["Declaration", "declared"]

_OF_VALUE = ("value", "place", "persistable", "zero_copy", "name")
_OF_TYPE = ("dtype", "dims", "name", "type", "persistable")


class Declaration(NamedTuple):
    """A variable to make: `array` is a copy of its value, None if an op will write it."""

    name: str
    element: DType
    dims: tuple[int, ...] | None
    persistable: bool
    array: Array | None


def declared(args: Sequence[object], kwargs: Mapping[str, object]) -> Declaration:
    """Return the variable that the arguments of `VarBase` declare; TypeError for other ones."""
    has_type = isinstance(args[0], VarType) if args else "dtype" in kwargs
    names = _OF_TYPE if has_type else _OF_VALUE
    fields: dict[str, object] = {**dict(zip(names, args, strict=False)), **kwargs}
    unknown = [key for key in fields if key not in names]
    given = "dtype" if names is _OF_TYPE else "value"
    if len(args) > len(names) or unknown or given not in fields:
        forms = f"VarBase({', '.join(_OF_VALUE)}) or VarBase({', '.join(_OF_TYPE)})"
        problem = f"not {', '.join(unknown)}" if unknown else f"{given} is missing"
        problem = "too many values" if len(args) > len(names) else problem
        raise TypeError(f"a variable is made by {forms}: {problem}")
    name = str(fields.get("name") or unique_name.generate("generated_var"))
    persistable = bool(fields.get("persistable"))
    if names is _OF_TYPE:
        element = DType.of(convert_np_dtype_to_dtype_(cast(VarType, fields["dtype"])))
        sizes = tuple([int(size) for size in cast("Sequence[int]", fields.get("dims") or ())])
        return Declaration(name, element, sizes or None, persistable, None)
    value = fields["value"]
    if not is_numpy(value):
        raise TypeError(
            f"value of variable {name!r} must be an array, but received {type(value).__name__}"
        )
    array = np.array(value, order="C")
    return Declaration(name, DType.of(array.dtype), array.shape, persistable, array)
