"""What a plan costs on any machine, counted without one: kernels, bytes, arithmetic, time at best.

Every kernel reads each of its inputs once and writes each of its outputs once: what is counted is
the least that memory must move for the kernels as they are, so fusing shows as fewer bytes, and
what a target's kernels read twice does not show. A product of two numbers and its sum are two
operations; of all else an element of a result counts as one for each op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.ir.dims import Size, evaluate
from compiler.ir.opdef import GradOp
from compiler.ir.types import DType, TensorType
from compiler.plan import Place, Plan, PlannedOp, Step, Value


@dataclass(frozen=True)
class Cost:
    """What one kernel moves and computes: bytes and operations."""

    kernel: str
    read: int
    written: int
    operations: int

    @property
    def moved(self) -> int:
        """Bytes in both directions."""
        return self.read + self.written


@dataclass(frozen=True)
class Gpu:
    """What a GPU can do at best: bytes a second, and operations a second by element type.

    Numbers of the makers' data sheets, dense; of products for 16 bits and float32.
    """

    name: str
    bandwidth: float
    operations: Mapping[DType, float]

    def seconds(self, cost: Cost, dtype: DType = DType.FP32) -> float:
        """The least time for a kernel: of its bytes or of its arithmetic, whichever is longer."""
        return max(cost.moved / self.bandwidth, cost.operations / self.operations[dtype])


def _gpu(name: str, bandwidth: float, half: float, single: float, double: float) -> Gpu:
    rates = {DType.FP16: half, DType.FP32: single, DType.FP64: double}
    return Gpu(name, bandwidth * 1e12, {dtype: rate * 1e12 for dtype, rate in rates.items()})


GPUS: Mapping[str, Gpu] = {
    each.name: each
    for each in (
        _gpu("a100", 2.039, 312.0, 19.5, 19.5),
        _gpu("h100", 3.35, 989.0, 67.0, 67.0),
        _gpu("h200", 4.8, 989.0, 67.0, 67.0),
        _gpu("b200", 8.0, 2250.0, 75.0, 37.0),
        _gpu("mi300x", 5.3, 1307.0, 163.4, 163.4),
        _gpu("rtx4090", 1.008, 165.2, 82.6, 1.29),
    )
}
"""GPUs by name."""


def account(plan: Plan, sizes: Mapping[str, int] | None = None) -> list[Cost]:
    """What each kernel of a plan costs, in order; `sizes` says what the names in shapes stand for.

    Steps that only free memory, and those whose sizes data decides, are left out.
    """
    known = sizes or {}
    steps = (step for step in plan.steps if _counts(step))
    return [_cost(step, known) for step in steps]


def _counts(step: Step) -> bool:
    frees = step.ops[0].kind == "delete_var"
    return not frees and not any(value.type.is_open for op in step.ops for value in op.values)


def _cost(step: Step, sizes: Mapping[str, int]) -> Cost:
    inputs = _held(value for op in step.ops for value in _data(op))
    outputs = _held(v for op in step.ops for side in op.outputs.values() for v in side)
    made = {value.label for value in outputs}
    read = sum(_bytes(value, sizes) for value in inputs if value.label not in made)
    written = sum(_bytes(value, sizes) for value in outputs)
    name = " + ".join(op.kind for op in step.ops)
    return Cost(name, read, written, sum(_operations(op, sizes) for op in step.ops))


def _data(op: PlannedOp) -> list[Value]:
    """What an op reads, without what it only asks the shape of."""
    slots = op.defn.slots
    return [
        value
        for slot, values in op.inputs.items()
        for value in values
        if slot not in slots or not slots[slot].shape_only
    ]


def _held(values: Iterable[Value]) -> list[Value]:
    """Each value that is in memory, once."""
    return list(dict.fromkeys(each for each in values if each.place is not Place.INNER))


def _bytes(value: Value, sizes: Mapping[str, int]) -> int:
    return evaluate(value.type.nbytes, sizes)


def _operations(op: PlannedOp, sizes: Mapping[str, int]) -> int:
    """Multiplications and sums of a product; else a result's elements, each one operation."""
    owner = op.defn.origin if isinstance(op.defn, GradOp) else op.defn
    count: Any = getattr(owner, "multiplications", None)
    if count is None:
        results = (value.type.numel for side in op.outputs.values() for value in side)
        return max((evaluate(numel, sizes) for numel in results), default=0)
    times = _wanted(op) if isinstance(op.defn, GradOp) else 1
    return 2 * times * evaluate(count(_shapes(op)), sizes)


def _wanted(op: PlannedOp) -> int:
    """How many gradients are asked for: each is as much work as the op itself."""
    return sum(bool(values) for values in op.outputs.values())


def _shapes(op: PlannedOp) -> dict[str, tuple[Size, ...]]:
    """The shape in each slot of an op, or of the op whose gradient it is."""
    sides = (*op.inputs.items(), *op.outputs.items())
    found: dict[str, TensorType] = {s.removesuffix("@GRAD"): v[0].type for s, v in sides if v}
    return {slot: type.shape for slot, type in found.items()}
