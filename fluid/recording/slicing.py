"""Indexing of variables: `x[1:, 0]`, `x[::-1]`, `x[i]` append the corresponding ops.

Ranges become one `slice`, or a `strided_slice` if a step is not 1; an axis that is reversed as a
whole becomes a following `reverse`. An axis indexed with an integer is removed; the reference fails
to do so if a later axis is reversed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from compiler.ir.program import VarDesc
from fluid import unique_name

__all__ = ["sliced"]

THE_END = 10_000_000
"""The value recorded for the end of an axis, as in the reference."""


def sliced(var: Any, item: Any) -> Any:
    """Index a variable with integers, ranges or variables.

    Raises TypeError for any other index and IndexError for more indices than axes.
    """
    return _Parts(var, _whole_index(var, item)).appended()


def _whole_index(var: Any, item: Any) -> list[Any]:
    """The index as a list, with `...` expanded to full ranges."""
    items = list(item) if isinstance(item, tuple) else [item]
    if any(entry is Ellipsis for entry in items):
        at = next(i for i, entry in enumerate(items) if entry is Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(var.shape) - len(items) + 1)
    if len(items) > len(var.shape):
        raise IndexError(
            f"{var.name!r} has {len(var.shape)} axes, too few for {len(items)} indices"
        )
    return items


@dataclass
class _Parts:
    """The selection of each axis, as the attributes of the ops."""

    var: Any
    items: list[Any]
    axes: list[int] = field(default_factory=list[int])
    starts: list[Any] = field(default_factory=list[Any])
    ends: list[Any] = field(default_factory=list[Any])
    steps: list[Any] = field(default_factory=list[Any])
    single: list[int] = field(default_factory=list[int])
    reversed_axes: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        for axis, item in enumerate(self.items):
            if isinstance(item, slice):
                self._range(axis, item)
            else:
                self._place(axis, item)

    def _place(self, axis: int, place: Any) -> None:
        """Select one index of an axis; the last index has no end that is larger by one."""
        if not isinstance(place, int | VarDesc) or isinstance(place, bool):
            raise TypeError(
                f"{self.var.name!r} takes numbers, ranges and variables as index, not {place!r}"
            )
        number = isinstance(place, int)
        end = (place + 1 if place != -1 else THE_END) if number else self._after(place)
        self.single.append(axis)
        self._take(axis, place, end, 1)

    def _range(self, axis: int, part: slice) -> None:
        start, end, step = part.start, part.stop, 1 if part.step is None else part.step
        if start is None and end is None and isinstance(step, int) and step in (1, -1):
            self.reversed_axes += [axis] * (step == -1)
            return
        backwards = isinstance(step, int) and step < 0
        if backwards and step < -1 and (start is None or end is None):
            raise ValueError(f"a step of {step} needs a start and an end: {part}")
        start = (-1 if backwards else 0) if start is None else start
        end = (-1 if backwards else THE_END) if end is None else end
        self._take(axis, start, end, step)

    def _take(self, axis: int, start: Any, end: Any, step: Any) -> None:
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.steps.append(step)

    def appended(self) -> Any:
        """Append the ops and return the result; the variable itself if all of it is selected."""
        out = self.var
        if self.axes:
            strided = any(not isinstance(step, int) or step != 1 for step in self.steps)
            out = self._slice("strided_slice" if strided else "slice", strided)
        if self.reversed_axes:
            reverse = _new(self.var, f"{self.var.name}_slice_reverse")
            axes = [axis - sum(gone < axis for gone in self.single) for axis in self.reversed_axes]
            self._append("reverse", {"X": out}, reverse, {"axis": axes})
            out = reverse
        return out

    def _slice(self, op_type: str, strided: bool) -> Any:
        inputs: dict[str, Any] = {"Input": self.var}
        attrs: dict[str, Any] = {"axes": self.axes, "decrease_axis": self.single}
        flags = [1] * len(self.axes)
        lists = [("Starts", self.starts), ("Ends", self.ends), ("Strides", self.steps)]
        for name, values in lists[: 3 if strided else 2]:
            waiting = [isinstance(value, VarDesc) for value in values]
            if any(waiting):
                inputs[f"{name}TensorList"] = [self._tensor(value) for value in values]
            flags = [-1 if wait else flag for wait, flag in zip(waiting, flags, strict=True)]
            pairs = zip(waiting, values, strict=True)
            attrs[name.lower()] = [-1 if wait else value for wait, value in pairs]
        out = _new(self.var, f"{self.var.name}_{op_type}")
        self._append(op_type, inputs, out, attrs | {"infer_flags": flags})
        return out

    def _tensor(self, value: Any) -> Any:
        """A number as a constant of the program."""
        if isinstance(value, VarDesc):
            value.stop_gradient = True
            return value
        return self._constant(value, "int32")

    def _constant(self, number: int, dtype: Any) -> Any:
        out = _block(self.var).create_var(dtype=dtype, stop_gradient=True)
        attrs = {"shape": [1], "dtype": out.dtype, "value": float(number), "force_cpu": True}
        self._append("fill_constant", {}, out, attrs)
        return out

    def _after(self, place: Any) -> Any:
        """The index after one held by a variable."""
        one = self._constant(1, place.dtype)
        out = _block(self.var).create_var(dtype=place.dtype, stop_gradient=True)
        self._append("elementwise_add", {"X": place, "Y": one}, out, {"axis": -1})
        return out

    def _append(self, op_type: str, inputs: Any, out: Any, attrs: Any) -> None:
        _block(self.var).append_op(op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)


def _block(var: Any) -> Any:
    return var.block.program.current_block()


def _new(var: Any, key: str) -> Any:
    return _block(var).create_var(name=unique_name.generate(key), dtype=var.dtype)
