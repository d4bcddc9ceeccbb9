"""How far apart neighbours lie in memory: what one lane, or one turn of a loop, has after another.

Threads that stand side by side should read what lies side by side. Which way that is, along lanes
or along turns, shows in the places that a kernel reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from compiler.codegen.trace import Expr, Term, all_parts, ordered
from compiler.codegen.triton.expressions import roots_of
from compiler.codegen.triton.kernel_ir import KernelBody, Source, number_of, size_of
from compiler.ir.dims import Size, product
from compiler.ir.types import Shape


def turns_lie_apart(lanes: KernelBody) -> bool:
    """True where more of what differs in lanes and turns lies side by side along the lanes.

    A column of a matrix is summed so: its turns are a row apart, its lanes are neighbours.
    """
    votes = 0
    for indices, shape in _places(lanes):
        along_lanes = _distance(indices, shape, _inner_axis(lanes), None)
        along_turns = [_distance(indices, shape, None, n) for n in range(len(lanes.loops))]
        if along_lanes != 0 and any(each != 0 for each in along_turns):
            votes += (along_lanes == 1) - (1 in along_turns)
    return votes > 0


def _inner_axis(lanes: KernelBody) -> int | None:
    """The axis along which lanes go first."""
    axes = [axis for axis, size in enumerate(lanes.shape) if size != 1]
    return axes[-1] if axes else None


def _places(lanes: KernelBody) -> Iterator[tuple[Sequence[Term], Shape]]:
    """The indices of each element that is read or written, and the shape they are in."""
    for part in all_parts(roots_of(lanes.stores)):
        if part.fn == "load":
            source = cast(Source, part.extra)
            yield part.args[: len(source.shape)], source.shape
    for store in lanes.stores:
        yield store.indices, store.shape


def _distance(
    indices: Sequence[Term], shape: Shape, axis: int | None, loop: int | None
) -> Size | None:
    """How many elements further the next lane of an axis, or the next turn of a loop, is."""
    total: Size = 0
    for place, index in enumerate(indices):
        step = step_of(index, axis, loop)
        if step is None:
            return None
        total = total + step * product(shape[place + 1 :])
    return total


def step_of(term: Term, axis: int | None, loop: int | None) -> Size | None:
    """What a number grows by from a lane to the next of an axis, or from a turn to the next.

    None where it does not grow evenly. Divisions are taken where nothing wraps round.
    """
    if not isinstance(term, Expr):
        return 0
    steps: dict[Expr, Size | None] = {}
    for part in ordered(term):
        steps[part] = _step(part, steps, axis, loop)
    return steps[term]


def _step(
    part: Expr, steps: dict[Expr, Size | None], axis: int | None, loop: int | None
) -> Size | None:
    if part.fn in ("index", "loop"):
        return int(number_of(part) == (axis if part.fn == "index" else loop))
    own = [steps[arg] if isinstance(arg, Expr) else 0 for arg in part.args]
    if all(isinstance(each, int) and each == 0 for each in own):
        return 0
    if None in own:
        return None
    a, b = cast("list[Size]", own[:2] if len(own) > 1 else [own[0], 0])
    match part.fn:
        case "add":
            return a + b
        case "subtract":
            return a - b
        case "multiply":
            return (
                _scaled(a, part.args[1]) if b == 0 else _scaled(b, part.args[0]) if a == 0 else None
            )
        case "index_mod" | "astype":
            return a if b == 0 else None
        case "index_div":
            return _divided(a, part.args[1]) if b == 0 else None
        case _:
            return None


def _scaled(step: Size, factor: Term) -> Size | None:
    size = size_of(factor)
    return None if size is None else step * size


def _divided(step: Size, divisor: Term) -> Size | None:
    """Smaller steps than the divisor hardly ever show."""
    size = size_of(divisor)
    if size is None:
        return None
    if step == 1:
        return 0
    whole = isinstance(step, int) and isinstance(size, int) and step % size == 0
    return step // size if whole or step == size else None
