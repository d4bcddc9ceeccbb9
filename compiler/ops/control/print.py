"""Host ops that print: `print`, and `assert`, which prints before it raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import HostOp, Slots, attr, reads, reads_lod, writes
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, TensorType
from compiler.support.escape import one_line, printable_lines

FORWARD, BACKWARD = ("FORWARD", "BOTH"), ("BACKWARD", "BOTH")
"""Values of `print_phase` that print a value, and those that print its gradient."""


class Print(HostOp, op="print"):
    """Out = In, printed if `print_phase` is FORWARD or BOTH, `first_n` times if not -1.

    The gradient is the same op with `is_forward` False, which prints for BACKWARD and BOTH.
    `summarize` is the number of elements shown, all if negative. Reference: print_op.cc.
    """

    no_kernel_reason = "it prints or raises on the host"

    In = reads()
    In_lod = reads_lod("In", optional=True, may_end_early=True)
    Out = writes()
    first_n = attr(-1)
    message = attr("")
    summarize = attr(20)
    print_tensor_name = attr(True)
    print_tensor_type = attr(True)
    print_tensor_shape = attr(True)
    print_tensor_lod = attr(True)
    print_phase = attr("BOTH")
    is_forward = attr(True)
    printed: int

    def infer(self, s: Slots[TensorType]) -> TensorType:
        if self.print_phase not in {*FORWARD, *BACKWARD}:
            raise BadAttribute(
                f"{self.kind}: 'print_phase' is {self.print_phase!r}, not FORWARD, BACKWARD or BOTH"
            )
        return s.In

    def numpy(self, In: Array, In_lod: list[Array] | None) -> Array:
        phases = FORWARD if self.is_forward else BACKWARD
        if self.print_phase in phases and print_count(self) != self.first_n:
            self.printed = print_count(self) + 1
            print(printed_text(self, In, In_lod or ()), flush=True)
        return In

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        names = {"In": [grad(op.outputs["Out"][0])]}, {"Out": [grad(op.inputs["In"][0])]}
        return [OpDesc("print", *names, {**op.attrs, "is_forward": False})]


class PrintNamed(Print, op="print_named"):
    """`print` with its operand's name, inserted by program conversion."""

    no_kernel_reason = "it prints or raises on the host"

    In_name = attr("")


def print_count(printer: Any) -> int:
    """Return how often an op has printed so far."""
    return getattr(printer, "printed", 0)


def printed_text(printer: Any, value: Array, levels: Sequence[Array]) -> str:
    """Return the text that `print` shows, in the reference's format.

    Non-printable characters in the message and the name are escaped: models are untrusted.
    """
    message, name = printable_lines(printer.message), one_line(getattr(printer, "In_name", ""))
    parts = [
        (bool(message), message),
        (printer.print_tensor_name, f"Tensor[{name}]"),
        (printer.print_tensor_shape, f"\tshape: {in_brackets(value.shape)}"),
        (printer.print_tensor_type, f"\tdtype: {value.dtype.name}"),
        (printer.print_tensor_lod and len(levels) > 0, f"\tLoD: {nested_brackets(levels)}"),
    ]
    count = value.size if printer.summarize < 0 else printer.summarize
    shown = value.reshape(-1)[:count].tolist()
    data = "".join(f"{item:g}," if isinstance(item, float) else f"{item}," for item in shown)
    return "\n".join([text for wanted, text in parts if wanted] + [f"\tdata: {data}"])


def in_brackets(sizes: Sequence[Any]) -> str:
    """Format numbers as the reference does.

    >>> in_brackets([2, 3])
    '[2,3,]'
    """
    return "[" + "".join(f"{size}," for size in sizes) + "]"


def nested_brackets(levels: Sequence[Any]) -> str:
    """Format the LoD of a value."""
    return in_brackets([in_brackets(level.tolist()) for level in levels])


class Assert(HostOp, op="assert"):
    """Raise an error with `summarize` elements of each Data (-1: all) unless all of Cond is true.

    Reference: assert_op.cc.
    """

    no_kernel_reason = "it prints or raises on the host"

    Cond = reads()
    Data = reads(many=True, optional=True)
    summarize = attr(-1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self, Cond: Array, Data: list[Array] | None) -> dict[str, Array]:
        if not np.all(Cond):
            count = None if self.summarize < 0 else self.summarize
            shown = "; ".join(str(item.reshape(-1)[:count].tolist()) for item in Data or ())
            raise ValueError(f"an assertion of the program does not hold: {shown or 'no data'}")
        return {}
