"""What the host does for the kernels of an op: numbers it makes of LoD, sizes, loops of launches.

Where sequences begin is known to the host, and which rows of a tensor a step of them takes follows
from it. Such arrays are made by functions of NumPy before the kernels are launched, and sent there;
those that come of feeds alone once a step, for all ops that ask for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from compiler.codegen.bind_and_run import NumpyOperand, shape_text
from compiler.codegen.triton.bind_and_run import TritonFrame
from compiler.ir.dims import Dim, Size
from compiler.ir.region import WHOLE
from compiler.ir.types import DType, TensorType
from compiler.plan import Place


@dataclass(frozen=True)
class HostValue:
    """An array, or several, that the host has in a step, by its name; `fed` if of feeds alone."""

    text: str
    fed: bool

    def __getitem__(self, index: int) -> HostValue:
        """One of several."""
        return HostValue(f"{self.text}[{index}]", self.fed)

    def length(self) -> HostValue:
        """How many there are."""
        return HostValue(f"len({self.text})", self.fed)

    def __str__(self) -> str:
        return self.text


class HostWork:
    """Writes the host's part of an op's step."""

    def __init__(self, frame: TritonFrame) -> None:
        self._frame = frame

    def flush(self) -> None:
        """Write the kernel begun last, if there is one."""
        raise NotImplementedError

    def settle(self) -> None:
        """Give every value of the op its place."""
        raise NotImplementedError

    def on_host(self, function: Callable[..., Any], *given: Any, hint: str = "") -> HostValue:
        """What a function of arrays and numbers gives, called on the host before what follows."""
        self.flush()
        frame = self._frame
        arguments = ", ".join(map(_argument, given))
        text, name = f"{frame.function(function)}({arguments})", hint or function.__name__
        if self._stays(given):
            return HostValue(frame.keep(text, False, Place.FEED, name), True)
        made = frame.names.make(name)
        frame.line(f"{made} = {text}")
        return HostValue(made, False)

    def _sent(self, value: Any, shape: Sequence[Size], dtype: DType) -> NumpyOperand:
        """An array of the host, copied to the device."""
        self.flush()
        frame, text = self._frame, f"uploaded(take, {value})"
        type = TensorType(dtype, tuple(shape))
        if self._stays(value):
            name = frame.keep(text, False, Place.FEED, "there")
        else:
            name = frame.names.make("there")
            frame.line(f"{name} = {text}")
        return NumpyOperand(frame, name, type, False, (Place.LOCAL, name, WHOLE))

    def _stays(self, given: Any) -> bool:
        """True for what is the same in the whole of a step, so that it need be made only once."""
        if isinstance(given, list | tuple):
            return all(map(self._stays, cast("list[Any]", given)))
        if isinstance(given, NumpyOperand):
            return given.storage[0] is Place.FEED
        if isinstance(given, Dim):
            return not self._frame.varying & {*given.names}
        return not isinstance(given, HostValue) or given.fed

    def set_size(self, size: Size, value: Any) -> None:
        """Say what a size is that only data decides."""
        self._frame.tell(size, str(value))

    def as_size(self, value: HostValue, hint: str = "size") -> Dim:
        """A number of the host as a size."""
        if value.text.isidentifier():
            return Dim.named(value.text)
        name = self._frame.names.make(hint)
        self._frame.line(f"{name} = {value}")
        return Dim.named(name)

    def write_host(self, out: NumpyOperand, value: Any) -> None:
        """Let an output of the host's be an array."""
        self.flush()
        if out.type.is_open:
            self._frame.line(f"{out} = {value}")
        else:
            self._frame.line(f"np.copyto({out}, np.reshape({value}, {shape_text(out.shape)}))")

    @contextmanager
    def for_each(self, values: Any, *hints: str) -> Generator[tuple[Dim, ...]]:
        """Launch what is written inside once for each of some tuples of numbers, told by name."""
        self.flush()
        self.settle()
        names = [self._frame.names.make(hint) for hint in hints]
        self._frame.line(f"for {', '.join(names)} in {values}:")
        self._frame.enter()
        self._frame.varying |= {*names}
        yield tuple(map(Dim.named, names))
        self.flush()
        self._frame.leave()


def _argument(given: Any) -> str:
    if isinstance(given, list | tuple):
        given = cast("list[Any]", given)
        return f"[{', '.join(map(_argument, given))}]"
    return str(given) if isinstance(given, HostValue | NumpyOperand | Dim) else repr(given)
