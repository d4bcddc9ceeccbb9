"""Long epilogues as functions, which a kernel calls for each vector of its tiles.

A tile of 12 rows and 2 vectors would have the code of an activation such as gelu 24 times, and a
kernel has tiles of several sizes. A call costs little beside so many instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.llvm_ir import Function, Value
from compiler.codegen.native.products.contraction import Finish, as_summed
from compiler.codegen.native.products.place import ResultAddresses
from compiler.support.thresholds import threshold

INLINED = threshold(
    "inlined_epilogue", 32, "instructions",
    "an epilogue of a product that has more for a vector is a function that tiles call", small=2,
)  # fmt: skip


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
