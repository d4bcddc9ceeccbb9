"""Plan: the finished list. Steps in order, what each reads and writes, buffers with their lives.

`compiler.freeze` makes it of a graph. Sizes stay expressions of the names that binding will know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TypeAlias

from compiler.escape import one_line
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef
from compiler.ir.region import WHOLE, Region
from compiler.ir.types import TensorType


@dataclass(frozen=True)
class Tensor:
    """A named array at a module's edge: a feed, persistable state, or a fetch.

    `dtype` is NumPy's name. `given` is true for state that must exist before the first step; state
    that a step writes before it reads it is made when missing.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    given: bool = False
    on_device: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory of an arena, of the host or the device: `nbytes` alive in `start <= step < stop`."""

    name: str
    nbytes: Size
    start: int
    stop: int
    on_device: bool = False


class Place(Enum):
    """Where the data of a value stands."""

    FEED = "feed"
    PARAM = "param"
    BUFFER = "buffer"
    LOCAL = "local"
    INNER = "inner"


Storage: TypeAlias = tuple[Place, "str | int", Region]


@dataclass(frozen=True)
class Value:
    """A var, frozen. Two values share memory only where `place` and `home` are equal.

    `home` is the buffer's number, the param's name, or the label of what stands by itself; `region`
    which bytes of the buffer.
    `INNER` values live in no memory: their kernel makes and uses them.
    """

    label: str
    type: TensorType
    place: Place
    home: str | int
    on_device: bool = False
    region: Region = WHOLE

    @property
    def memory(self) -> int | None:
        """The number of its buffer; None where it lies elsewhere."""
        return int(self.home) if self.place is Place.BUFFER else None

    @property
    def storage(self) -> Storage:
        """What two values have in common exactly where they begin at one byte of one memory."""
        return (self.place, self.home, self.region)


@dataclass(frozen=True)
class PlannedOp:
    """An op, frozen: its definition and the values in its slots.

    `body` are a block's steps, `given` the values they get of a run that was kept, and `kept` those
    they leave of each run. `target` is the code generator it was given to, "" for the host's, and
    `part` its place among kernels that are alike and make one launch.
    """

    kind: str
    defn: OpDef
    inputs: Mapping[str, tuple[Value, ...]]
    outputs: Mapping[str, tuple[Value, ...]]
    source: str
    text: str
    target: str = ""
    part: int | None = None
    body: tuple[Step, ...] = ()
    given: tuple[Value, ...] = ()
    kept: tuple[Value, ...] = ()

    @property
    def values(self) -> list[Value]:
        """Everything it reads and writes."""
        sides = (self.inputs, self.outputs)
        return [value for side in sides for values in side.values() for value in values]


@dataclass(frozen=True)
class Step:
    """One kernel: an op, or pointwise ops that fuse. Values in `dying` are not read later."""

    index: int
    ops: tuple[PlannedOp, ...]
    dying: frozenset[Value] = frozenset()

    @property
    def parts(self) -> list[tuple[PlannedOp, ...]]:
        """The ops of each of the kernels that make one launch; all of them where it is one."""
        return [tuple(part) for _, part in groupby(self.ops, key=lambda op: op.part)]


@dataclass(frozen=True)
class Plan:
    """All a target needs to write code, and nothing it may change.

    `fetches` are the names by which `results` are returned.

    `in_order` asks for sums that are made in the same order in every run, `tf32` lets products of
    float32 round their factors to 10 bits behind the point.
    """

    name: str
    dims: tuple[str, ...]
    feeds: tuple[Value, ...]
    params: tuple[Tensor, ...]
    results: tuple[Value, ...]
    fetches: tuple[str, ...]
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    in_order: bool = False
    tf32: bool = False

    def __str__(self) -> str:
        return _show(self)


def tensor(name: str, type: TensorType, given: bool = False, on_device: bool = False) -> Tensor:
    """A type at a module's edge."""
    return Tensor(name, type.dtype.numpy.name, type.shape, given, on_device)


# ---- text --------------------------------------------------------------------------------------


def _show(plan: Plan) -> str:
    """A plan for people: buffers with lives, then steps with what each frees."""
    lines = [f"plan {one_line(plan.name)}({', '.join(plan.dims)}) {{"]
    lines += [f"  feed {value.label}: {value.type}" for value in plan.feeds]
    lines += [f"  param {_tensor_text(each)}" for each in plan.params]
    lines += [f"  buffer {i}: {b.nbytes} bytes, steps {b.start}..{b.stop - 1}"
              for i, b in enumerate(plan.buffers)]  # fmt: skip
    for step in plan.steps:
        lines += _show_step(step, "  ")
    lines += [f"  return {', '.join(_show_value(value) for value in plan.results)}", "}"]
    return "\n".join(lines) + "\n"


def _tensor_text(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return f"{one_line(tensor.name)}: {tensor.dtype}[{shape}]" + (
        "" if tensor.given else " (made here)"
    )


def _show_step(step: Step, indent: str) -> list[str]:
    lines = [f"{indent}step {step.index}" + (":" if len(step.ops) == 1 else ", fused:")]
    for op in step.ops:
        outputs = ", ".join(_show_value(v) for values in op.outputs.values() for v in values)
        inputs = ", ".join(_show_value(v) for values in op.inputs.values() for v in values)
        lines.append(
            f"{indent}  {outputs} = {op.kind}({inputs})"
            + f"  // {one_line(op.source)}" * bool(op.source)
        )
        for inner in op.body:
            lines += _show_step(inner, indent + "    ")
    return lines


def _show_value(value: Value) -> str:
    where = f"@{value.home}{value.region}" if value.place is Place.BUFFER else ""
    return value.label + where
