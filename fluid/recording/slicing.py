"""Python's indexing of variables: `x[1:, 0]`, `x[::-1]`, `x[i]` append the ops they stand for.

A part of some axes is one `slice`, or a `strided_slice` where steps other than 1 occur; an axis
that is turned round as a whole is a `reverse` behind it. An axis with one place taken goes; the
reference forgets that where it turns a later one round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fluid import unique_name

__all__ = ["Sliceable"]

THE_END = 10_000_000
"""What is written down for the end of an axis, as the reference does."""


class Sliceable:
    """What a variable can do with square brackets; mixed into `fluid.framework.Variable`."""

    # Python would count x[0], x[1], … for ever to walk over what has no end before it runs.
    __iter__ = None

    def __getitem__(self, item: Any) -> Any:
        """The part of a variable that an index of places, ranges or variables names.

        Raises TypeError for any other index and IndexError for more places than axes.
        """
        parts = _Parts(self, _whole_index(self, item))
        return parts.appended()


def _whole_index(var: Any, item: Any) -> list[Any]:
    """The index as a list in which `...` has become ranges over whole axes."""
    items = list(item) if isinstance(item, tuple) else [item]
    if any(each is Ellipsis for each in items):
        at = next(i for i, each in enumerate(items) if each is Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(var.shape) - len(items) + 1)
    if len(items) > len(var.shape):
        raise IndexError(f"{var.name!r} has {len(var.shape)} axes, too few for {len(items)} places")
    return items


@dataclass
class _Parts:
    """What is taken of each axis, as the ops want it."""

    var: Any
    items: list[Any]
    axes: list[int] = field(default_factory=list[int])
    starts: list[Any] = field(default_factory=list[Any])
    ends: list[Any] = field(default_factory=list[Any])
    steps: list[Any] = field(default_factory=list[Any])
    single: list[int] = field(default_factory=list[int])
    turned: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        for axis, item in enumerate(self.items):
            if isinstance(item, slice):
                self._range(axis, item)
            else:
                self._place(axis, item)

    def _place(self, axis: int, place: Any) -> None:
        """One place of an axis; the last one has no end that is one larger."""
        if not isinstance(place, int | Sliceable) or isinstance(place, bool):
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
            self.turned += [axis] * (step == -1)
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
        """The variable itself where all of it is taken, else the result of the ops."""
        out = self.var
        if self.axes:
            strided = any(not isinstance(step, int) or step != 1 for step in self.steps)
            out = self._slice("strided_slice" if strided else "slice", strided)
        if self.turned:
            reverse = _new(self.var, f"{self.var.name}_slice_reverse")
            axes = [axis - sum(gone < axis for gone in self.single) for axis in self.turned]
            self._append("reverse", {"X": out}, reverse, {"axis": axes})
            out = reverse
        return out

    def _slice(self, op_type: str, strided: bool) -> Any:
        inputs: dict[str, Any] = {"Input": self.var}
        attrs: dict[str, Any] = {"axes": self.axes, "decrease_axis": self.single}
        flags = [1] * len(self.axes)
        lists = [("Starts", self.starts), ("Ends", self.ends), ("Strides", self.steps)]
        for name, values in lists[: 3 if strided else 2]:
            waiting = [isinstance(value, Sliceable) for value in values]
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
        if isinstance(value, Sliceable):
            value.stop_gradient = True
            return value
        return self._constant(value, "int32")

    def _constant(self, number: int, dtype: Any) -> Any:
        out = _block(self.var).create_var(dtype=dtype, stop_gradient=True)
        attrs = {"shape": [1], "dtype": out.dtype, "value": float(number), "force_cpu": True}
        self._append("fill_constant", {}, out, attrs)
        return out

    def _after(self, place: Any) -> Any:
        """The place behind one that a variable holds."""
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
