"""Indexing of variables: `x[1:, 0]`, `x[::-1]`, `x[i]` append the corresponding ops.

Ranges become one `slice`, or a `strided_slice` if a step is not 1; an axis that is reversed as a
whole becomes a following `reverse`. An axis indexed with an integer is removed; the reference fails
to do so if a later axis is reversed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Generic, TypeGuard

from compiler.support.dataclass import dataclass
from fluid.recording.annotations import DTypeLike
from fluid.recording.arithmetic import V, VariableOperand, is_variable
from fluid.recording.narrowing import is_sequence

__all__ = ["sliced"]

THE_END = 10_000_000
"""The value recorded for the end of an axis, as in the reference."""


def sliced(var: V, item: object) -> V:
    """Index a variable with integers, ranges or variables.

    Raises TypeError for any other index and IndexError for more indices than axes.
    """
    return _Parts(var, _whole_index(var, item)).appended()


def _whole_index(var: VariableOperand, item: object) -> list[object]:
    """The index as a list, with `...` expanded to full ranges."""
    items = list(item) if is_sequence(item) and isinstance(item, tuple) else [item]
    if any(entry is Ellipsis for entry in items):
        at = next(i for i, entry in enumerate(items) if entry is Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(var.shape) - len(items) + 1)
    if len(items) > len(var.shape):
        raise IndexError(
            f"{var.name!r} has {len(var.shape)} axes, too few for {len(items)} indices"
        )
    return items


def _is_range(item: object) -> TypeGuard[slice]:
    return isinstance(item, slice)


@dataclass
class _Parts(Generic[V]):
    """The selection of each axis, as the attributes of the ops."""

    var: V
    items: Sequence[object]
    axes: list[int] = field(default_factory=list[int])
    starts: list[int | V] = field(default_factory=list["int | V"])
    ends: list[int | V] = field(default_factory=list["int | V"])
    steps: list[int | V] = field(default_factory=list["int | V"])
    single: list[int] = field(default_factory=list[int])
    reversed_axes: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        for axis, item in enumerate(self.items):
            if _is_range(item):
                self._range(axis, item.start, item.stop, item.step)
            else:
                self._place(axis, item)

    def _place(self, axis: int, place: object) -> None:
        """Select one index of an axis; the last index has no end that is larger by one."""
        self.single.append(axis)
        if is_variable(place, self.var):
            self._take(axis, place, self._after(place), 1)
        elif isinstance(place, int) and not isinstance(place, bool):
            self._take(axis, place, place + 1 if place != -1 else THE_END, 1)
        else:
            raise TypeError(
                f"{self.var.name!r} takes numbers, ranges and variables as index, not {place!r}"
            )

    def _range(
        self, axis: int, start: int | V | None, end: int | V | None, step: int | V | None
    ) -> None:
        step = 1 if step is None else step
        if start is None and end is None and isinstance(step, int) and step in (1, -1):
            self.reversed_axes += [axis] * (step == -1)
            return
        backwards = isinstance(step, int) and step < 0
        if isinstance(step, int) and step < -1 and (start is None or end is None):
            part = slice(start, end, step)
            raise ValueError(f"a step of {step} needs a start and an end: {part}")
        start = (-1 if backwards else 0) if start is None else start
        end = (-1 if backwards else THE_END) if end is None else end
        self._take(axis, start, end, step)

    def _take(self, axis: int, start: int | V, end: int | V, step: int | V) -> None:
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.steps.append(step)

    def appended(self) -> V:
        """Append the ops and return the result; the variable itself if all of it is selected."""
        out = self.var
        if self.axes:
            strided = any(not isinstance(step, int) or step != 1 for step in self.steps)
            out = self._slice("strided_slice" if strided else "slice", strided)
        if self.reversed_axes:
            reverse = self.var.temporary(self.var.dtype, f"{self.var.name}_slice_reverse")
            axes = [axis - sum(gone < axis for gone in self.single) for axis in self.reversed_axes]
            return self.var.append("reverse", {"X": out}, reverse, {"axis": axes})
        return out

    def _slice(self, op_type: str, strided: bool) -> V:
        inputs: dict[str, object] = {"Input": self.var}
        attrs: dict[str, object] = {"axes": self.axes, "decrease_axis": self.single}
        flags = [1] * len(self.axes)
        lists = [("Starts", self.starts), ("Ends", self.ends), ("Strides", self.steps)]
        for name, values in lists[: 3 if strided else 2]:
            waiting = [is_variable(value, self.var) for value in values]
            if any(waiting):
                inputs[f"{name}TensorList"] = [self._tensor(value) for value in values]
            flags = [-1 if wait else flag for wait, flag in zip(waiting, flags, strict=True)]
            pairs = zip(waiting, values, strict=True)
            attrs[name.lower()] = [-1 if wait else value for wait, value in pairs]
        out = self.var.temporary(self.var.dtype, f"{self.var.name}_{op_type}")
        return self.var.append(op_type, inputs, out, attrs | {"infer_flags": flags})

    def _tensor(self, value: int | V) -> V:
        """A number as a constant of the program."""
        if isinstance(value, int):
            return self._constant(value, "int32")
        value.stop_gradient = True
        return value

    def _constant(self, number: int, dtype: DTypeLike) -> V:
        out = self.var.temporary(dtype, None, stop_gradient=True)
        attrs = {"shape": [1], "dtype": out.dtype, "value": float(number), "force_cpu": True}
        return self.var.append("fill_constant", {}, out, attrs)

    def _after(self, place: V) -> V:
        """The index after one held by a variable."""
        one = self._constant(1, place.dtype)
        out = self.var.temporary(place.dtype, None, stop_gradient=True)
        return self.var.append("elementwise_add", {"X": place, "Y": one}, out, {"axis": -1})
