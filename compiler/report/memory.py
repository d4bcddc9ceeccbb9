"""The arena of a plan over time: offset and contents of each buffer, and the peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from compiler.ir.dims import Size, evaluate
from compiler.pack import Packing
from compiler.plan import Buffer, Plan, PlannedOp, StorageKind
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a step's temporaries for one set of sizes.

    `temporaries` is their sum without sharing, in the original program; `largest` the largest live
    sum of the final plan, a lower bound of every packing; `arena` the size it was packed into. The
    last two include workspaces of kernels, such as those of convolutions.
    """

    temporaries: int
    largest: int
    arena: int


@dataclass(frozen=True)
class Bar:
    """A buffer in the arena: `nbytes` at `offset`, live in the steps `start <= step < stop`.

    `holds` are the labels of the values written to it, each with the step that writes it.
    """

    name: str
    offset: int
    nbytes: int
    start: int
    stop: int
    holds: tuple[tuple[str, int], ...] = ()


def size_text(size: Size | None) -> str:
    """Format bytes with a unit; an expression unchanged; None as an empty text.

    >>> size_text(1536), size_text(12), size_text(None)
    ('1.5 KiB', '12 B', '')
    """
    if not isinstance(size, int):
        return "" if size is None else f"{size} B"
    unit = min((size.bit_length() - 1) // 10, 4) if size > 0 else 0
    return f"{size / 1024**unit:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def bars(
    plan: Plan, buffers: Sequence[Buffer], packing: Packing, sizes: Mapping[str, int]
) -> list[Bar]:
    """Return the buffers of a module with their offsets, named after the first value they hold.

    A module may have more buffers than its plan: the workspaces of kernels.
    """
    contents: dict[str | int, list[tuple[str, int]]] = {}
    for step, home, label in _written(plan):
        contents.setdefault(home, []).append((label, step))
    result: list[Bar] = []
    for index, (buffer, offset) in enumerate(zip(buffers, packing.offsets, strict=True)):
        holds = tuple(dict.fromkeys(contents.get(index, ())))
        name = holds[0][0] if holds else buffer.name
        nbytes = evaluate(buffer.nbytes, sizes)
        result.append(Bar(name, offset, nbytes, buffer.start, buffer.stop, holds))
    return result


def _written(plan: Plan) -> Iterator[tuple[int, str | int, str]]:
    """Yield step, buffer and label of every value that is written to a buffer."""
    for step in plan.steps:
        for op in step.ops:
            for written in _outputs(op):
                yield step.index, *written


def _outputs(op: PlannedOp) -> Iterator[tuple[str | int, str]]:
    """Yield buffer and label of the values that an op or its body writes."""
    for values in op.outputs.values():
        yield from ((v.home, v.label) for v in values if v.place is StorageKind.BUFFER)
    for step in op.body:
        for inner in step.ops:
            yield from _outputs(inner)


def live_bytes(bars: Sequence[Bar]) -> list[int]:
    """Return the bytes live in each step."""
    change = [0] * (max((bar.stop for bar in bars), default=0) + 1)
    for bar in bars:
        change[bar.start] += bar.nbytes
        change[bar.stop] -= bar.nbytes
    return list(accumulate(change))[:-1]
