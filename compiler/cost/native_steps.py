"""Steps of a native plan: their kernels, what those cost, and why others run in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.codegen.native.machine import MACHINES
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.native.target import NativeTarget
from compiler.cost.plan_cost import call_cost
from compiler.plan import Plan, Step
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class NativeStep:
    """Ops that run together: the names of their kernels, operations, bytes, measured seconds.

    `ops` are texts with sources, as in the comments of a module. `reason` tells why a step without
    kernels runs in NumPy.
    """

    ops: tuple[str, ...]
    kinds: str
    source: str
    kernels: tuple[str, ...]
    flops: int
    moved: int
    reason: str
    seconds: float | None = None

    @property
    def intensity(self) -> float:
        """Operations for each byte; 0 if no bytes are known."""
        return self.flops / self.moved if self.moved else 0.0


def native_steps(
    plan: Plan, sizes: Mapping[str, int], machine: str, reasons: Mapping[tuple[str, ...], str]
) -> list[NativeStep]:
    """The steps of a native plan in order; `reasons` tell why ops with these outputs have no
    kernels.
    """
    writer = NativeTarget(MACHINES[machine]).module_writer(plan)
    return [_step(writer, step, sizes, reasons) for step in plan.steps]


def _step(
    writer: NativeModuleWriter,
    step: Step,
    sizes: Mapping[str, int],
    reasons: Mapping[tuple[str, ...], str],
) -> NativeStep:
    inside = [nested.index for nested in _with_nested(step)]
    calls = [call for call in writer.costs if call.step in inside]
    costs = [call_cost(call, sizes) for call in calls]
    why = next((writer.fallbacks[index] for index in inside if index in writer.fallbacks), "")
    first = step.ops[0]
    if not calls and not why and first.kind != "delete_var":
        labels = tuple(value.label for slot in first.outputs.values() for value in slot)
        why = reasons.get(labels, "")
    return NativeStep(
        tuple(op.comment for op in step.ops),
        "+".join(op.kind for op in step.ops), first.source,
        tuple(dict.fromkeys(call.name for call in calls)), sum(flops for flops, _ in costs),
        sum(moved for _, moved in costs), why,
    )  # fmt: skip


def _with_nested(step: Step) -> Iterator[Step]:
    """Yield a step and those of its blocks."""
    yield step
    for inner in (inner for op in step.ops for inner in op.body):
        yield from _with_nested(inner)
