"""What a lowering may ask of the code generator that calls it: text in, text out.

An op's `lower(self, k, X, Out)` gets a `Kernel` and one `Operand` a slot, and writes lines of the
generated module. It never sees buffers, offsets or devices, so one op file needs only `ir`.

    def lower(self, k, X, Y, Out):
        k.line(f"np.matmul({X.view((rows, inner))}, {Y.view((inner, cols))}, out={Out})")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from compiler.ir.dims import Size
from compiler.ir.types import DType, Shape, TensorType


class Operand(Protocol):
    """A value as a lowering sees it; `str(operand)` is the Python expression for its array."""

    @property
    def type(self) -> TensorType:
        """Its element type and shape; sizes may be expressions of names the module knows."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of `type`."""
        ...

    def view(self, shape: Sequence[Size]) -> str:
        """An expression for the same elements in another shape, made once a binding if it can be.

        `-1` is not allowed: every size is known as a number or an expression.
        """
        ...


class Kernel(Protocol):
    """The function body being written. Names of the generated module's scope: `np` and sizes."""

    def line(self, text: str) -> None:
        """Write one line that runs in every step."""
        ...

    def scratch(self, shape: Sequence[Size], dtype: DType) -> Operand:
        """Working memory of the arena that lives during this op only; contents undefined."""
        ...

    def once(self, expression: str, uses: Sequence[Operand], hint: str) -> str:
        """A name for an expression over `uses`, evaluated once a binding where all their arrays
        stay in place (arena, parameters), and in every step where one is fed anew.
        """
        ...

    def aliased(self, a: Operand, b: Operand) -> bool:
        """True where both share storage at the same offset, so that copying would be idle."""
        ...

    def function(self, body: Callable[..., Any]) -> str:
        """Carry a Python function's source into the module and give its name there.

        The function may use `np`, its arguments and the Python language only.
        """
        ...
