"""What happens to a tile's sums in registers before they are stored.

Long epilogues are functions, which a kernel calls for each vector of its tiles. A tile of 12 rows
and 2 vectors would have the code of an activation such as gelu 24 times, and a kernel has tiles of
several sizes. A call costs little beside so many instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.native.llvm_ir import Function, Type, Value
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.contraction import Finish, as_summed
from compiler.codegen.native.products.place import ResultAddresses
from compiler.ir.dims import Size
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

INLINED = threshold(
    "inlined_epilogue", 32, "instructions",
    "an epilogue of a product that has more for a vector is a function that tiles call", small=2,
)  # fmt: skip


@dataclass(frozen=True)
class Epilogue:
    """An epilogue: `finish` gets a vector of sums and its place, and returns the vectors to store.

    It returns one for each of `outputs`. `operands` are the arrays it reads and writes; one that
    is called "out" says the output's type and strides where they are not the product's own.
    `start` names the operand from which the sums begin: a bias, or "out" to add to what is there.
    `label` becomes part of the kernel's name.
    """

    label: str = ""
    operands: tuple[EpilogueOperand, ...] = ()
    finish: Finish = as_summed
    outputs: tuple[str, ...] = ("out",)
    start: str = ""

    def types(self, element: Type) -> dict[str, Type]:
        """The operands' elements, "out" first."""
        return {"out": element} | {operand.name: operand.type for operand in self.operands}

    def strides(self, out: Sequence[Size]) -> Mapping[str, Sequence[Size]]:
        """Each operand's strides over the axes of the output, whose own are given."""
        strides = {"out": tuple(out)}
        for operand in self.operands:
            strides[operand.name] = tuple(out) if operand.strides is None else operand.strides
        return strides


def bias(element: Type, axes: int, name: str = "bias") -> Epilogue:
    """Sums that begin from a vector of one element for each column; `axes` are the output's."""
    vector = EpilogueOperand(name, element, (*[0] * (axes - 1), 1))
    return Epilogue("bias", (vector,), start=name)


def store_finished(
    finish: Finish, outputs: Sequence[str], value: Value, place: ResultAddresses
) -> None:
    """Pass a vector of sums through an epilogue, and store the results at their place."""
    called = None if finish is as_summed else _called(finish, outputs, value, place)
    if called is None:
        return _store(place.function, finish, outputs, value, place)
    place.function.call(called.name, called.result, *_arguments(value, place))
    return None


def _arguments(value: Value, place: ResultAddresses) -> list[Value]:
    """What an epilogue's function gets: the sums, the addresses, and a mask that is computed."""
    mask = [place.mask] if place.mask is not None and not place.mask.is_constant else []
    return [value, *place.pointers.values(), *mask]


def _called(
    finish: Finish, outputs: Sequence[str], value: Value, place: ResultAddresses
) -> Function | None:
    """The function of an epilogue, which is written once in a kernel; None for a short one."""
    mask = place.mask
    masked = mask.name if mask is not None and mask.is_constant else mask is not None
    key = (finish, tuple(outputs), value.type, tuple(place.pointers), masked)
    callees = place.function.callees
    if key not in callees:
        callees[key] = _written(finish, outputs, value, place, f"epilogue{len(callees)}")
    return callees[key]


def _written(
    finish: Finish, outputs: Sequence[str], value: Value, place: ResultAddresses, name: str
) -> Function | None:
    arguments = _arguments(value, place)
    parameters = [(f"a{number}", argument.type) for number, argument in enumerate(arguments)]
    f = Function(name, parameters, internal=True)
    sums, *rest = f.parameters
    pointers = dict(zip(place.pointers, rest, strict=False))
    mask = place.mask if place.mask is None or place.mask.is_constant else rest[-1]
    inside = ResultAddresses(f, place.lanes, place.types, pointers, place.columns, mask)
    _store(f, finish, outputs, sums, inside)
    return f if f.instructions > INLINED.value else None


def _store(
    f: Function, finish: Finish, outputs: Sequence[str], value: Value, place: ResultAddresses
) -> None:
    for name, result in zip(outputs, finish(f, [value], place), strict=True):
        place.store(name, result)
