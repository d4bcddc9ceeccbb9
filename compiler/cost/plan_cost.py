"""Static cost of a plan: kernel launches, bytes, operations and minimum time, without a device.

Device ops are counted by their generated kernels: the bytes that those load over their loops, the
bytes they store, the operations they compute (`compiler.codegen.triton.cost`). Products of a
library, and host ops, count as if each step read its inputs once and wrote its outputs once; copies
between host and device use the link. In addition to the bytes moved, the minimum is counted: each
input of a step that is read, once, and each output written once.

Native kernels count by the bytes and operations that their generators state, of which each array is
read or written once.

A multiply-add is two operations. Blocks of loops and branches count once, since the number of
iterations is data-dependent. Steps with data-dependent sizes are omitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from compiler.codegen.native.commands.sequences import KernelCall
from compiler.codegen.native.images.winograd import BLOCK
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.triton.cost import KernelTraffic, MovedElements
from compiler.codegen.triton.target import launches
from compiler.cost.gpu_limits import HOST, Gpu
from compiler.ir.analysis.placement import LIBRARY, NATIVE, TO_DEVICE, TO_HOST, TRITON
from compiler.ir.dims import evaluate, product
from compiler.ir.opdef import GradOp
from compiler.ir.types import DType, Shape
from compiler.plan import Plan, PlannedOp, PlannedValue, Step, Storage, StorageKind
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass


class Side(Enum):
    """Where a cost arises: a kernel on the device, code on the host, a copy between the two."""

    DEVICE = "device"
    HOST = "host"
    COPY = "copy"


@dataclass(frozen=True)
class Cost:
    """Bytes and operations of one kernel, host step or copy.

    `products` are the operations of matrix products, which matrix units execute, in the type
    `factor`.
    """

    kernel: str
    read: int
    written: int
    operations: int = 0
    products: int = 0
    factor: DType = DType.FP32
    side: Side = Side.DEVICE

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    def memory_seconds(self, gpu: Gpu) -> float:
        """Return the minimum seconds to move its bytes."""
        if self.side is Side.COPY:
            return self.read / gpu.link
        return self.moved / (HOST if self.side is Side.HOST else gpu.bandwidth)

    def compute_seconds(self, gpu: Gpu) -> float:
        """Return the minimum seconds for its operations; 0 on the host, where they are not
        counted.
        """
        if self.side is not Side.DEVICE:
            return 0.0
        return self.products / gpu.rate(self.factor) + self.operations / gpu.rate(DType.FP32)

    def seconds(self, gpu: Gpu) -> float:
        """Return the minimum time: that of its bytes or of its operations, whichever is longer."""
        return max(self.memory_seconds(gpu), self.compute_seconds(gpu))


@dataclass(frozen=True)
class StepCost:
    """The kernels of one step, and the minimum bytes it reads and writes."""

    kernels: tuple[Cost, ...]
    least_read: int
    least_written: int

    @property
    def least(self) -> int:
        """Minimum bytes read and written."""
        return self.least_read + self.least_written


@dataclass(frozen=True)
class PlanCost:
    """The cost of a plan: its steps in order; `left_out` are those with data-dependent sizes."""

    steps: tuple[StepCost, ...]
    left_out: tuple[str, ...] = ()
    on_device: bool = field(default=True)

    @cached_property
    def kernels(self) -> tuple[Cost, ...]:
        """The kernels of all steps."""
        return tuple(cost for step in self.steps for cost in step.kernels)

    def of(self, side: Side) -> list[Cost]:
        """Return the costs that arise at one side."""
        return [cost for cost in self.kernels if cost.side is side]

    @property
    def launches(self) -> int:
        """Number of kernel launches."""
        return len(self.of(Side.DEVICE))

    def total(self, side: Side = Side.DEVICE) -> Cost:
        """Return the sum of all costs of one side; `factor` is not that of the kernels."""
        costs = self.of(side)
        return Cost(
            f"all {len(costs)}",
            sum(cost.read for cost in costs),
            sum(cost.written for cost in costs),
            sum(cost.operations for cost in costs),
            sum(cost.products for cost in costs),
            side=side,
        )

    @property
    def moved(self) -> int:
        """Bytes that kernels move to and from device memory."""
        return self.total().moved

    @property
    def least(self) -> int:
        """Bytes that kernels would move if each step read and wrote every value once."""
        return sum(s.least for s in self.steps if any(k.side is Side.DEVICE for k in s.kernels))

    def seconds(self, gpu: Gpu) -> float:
        """Return the minimum time of all kernels, host steps and copies, executed consecutively."""
        return sum(cost.seconds(gpu) for cost in self.kernels)


def account(
    plan: Plan, sizes: Mapping[str, int] | None = None, machine: Machine | None = None
) -> PlanCost:
    """Return the cost of each step of a plan; `sizes` are the values of symbolic sizes.

    A plan without device ops and native ops counts as if each of its steps were one device kernel
    that moves everything once: a lower bound for a device. Native kernels are those for `machine`,
    by default for this CPU.
    """
    steps = [nested for step in plan.steps for nested in (step, *_nested_steps(step))]
    steps = [step for step in steps if step.ops[0].kind != "delete_var"]
    counted = [step for step in steps if not _has_dynamic_sizes(step)]
    targets = {op.target for step in steps for op in step.ops}
    size_values = sizes or {}
    if NATIVE in targets:
        calls = native_calls(plan, machine)
        costs = [_native_step(step, calls.get(step.index, ()), size_values) for step in counted]
    else:
        kernels = launches(plan) if TRITON in targets else {}
        costs = [
            _device_step(
                step, [(w.name, w.traffic) for w in kernels.get(step.index, ())], size_values
            )
            if step.ops[0].target == TRITON
            else _minimum_cost(step, size_values, _side(step) if TRITON in targets else Side.DEVICE)
            for step in counted
        ]
    left_out = tuple(step.ops[0].kind for step in steps if _has_dynamic_sizes(step))
    counted_costs = tuple(cost for cost in costs if cost.kernels)
    return PlanCost(counted_costs, left_out, bool(targets & {NATIVE, TRITON, LIBRARY}))


def _nested_steps(step: Step) -> list[Step]:
    """Return the steps of nested blocks."""
    bodies = (inner for op in step.ops for inner in op.body)
    return [nested for inner in bodies for nested in (inner, *_nested_steps(inner))]


def _has_dynamic_sizes(step: Step) -> bool:
    return not step.ops[0].body and any(v.type.is_open for op in step.ops for v in op.values)


def _side(step: Step) -> Side:
    if step.ops[0].target == LIBRARY:
        return Side.DEVICE
    return Side.COPY if step.ops[0].kind in (TO_DEVICE, TO_HOST) else Side.HOST


# ---- steps by their inputs and outputs ---------------------------------------------------------


def _minimum_cost(step: Step, sizes: Mapping[str, int], side: Side) -> StepCost:
    """Return the cost of a step that reads each input once and writes each output once."""
    if step.ops[0].body:
        return StepCost((), 0, 0)
    read = sum(_bytes(value, sizes) for value in _inputs(step))
    written = sum(_bytes(value, sizes) for value in _outputs(step))
    name = " + ".join(op.kind for op in step.ops)
    products = sum(_products(op, sizes) for op in step.ops)
    others = 0 if side is Side.COPY else sum(_elements(op, sizes) for op in step.ops)
    cost = Cost(name, read, written, others, products, _factor(step), side)
    return StepCost((cost,), read, written)


def _inputs(step: Step) -> list[PlannedValue]:
    """Return the inputs that the step does not compute itself, each once."""
    computed = {value.label for value in _outputs(step)}
    values = _in_memory(value for op in step.ops for value in _data_inputs(op))
    return [value for value in values if value.label not in computed]


def _outputs(step: Step) -> list[PlannedValue]:
    return _in_memory(v for op in step.ops for slot in op.outputs.values() for v in slot)


def _data_inputs(op: PlannedOp) -> list[PlannedValue]:
    """Return the inputs of an op whose data it reads, not only their shapes."""
    slots = op.defn.slots
    return [
        value
        for slot, values in op.inputs.items()
        for value in values
        if slot not in slots or not slots[slot].shape_only
    ]


def _in_memory(values: Iterable[PlannedValue]) -> list[PlannedValue]:
    """Return the distinct values that are in memory."""
    return list(dict.fromkeys(value for value in values if value.place is not StorageKind.INNER))


def _bytes(value: PlannedValue, sizes: Mapping[str, int]) -> int:
    return evaluate(value.type.nbytes, sizes)


def _factor(step: Step) -> DType:
    """Return the narrowest floating-point type that a step reads."""
    dtypes = {v.type.dtype for op in step.ops for v in _data_inputs(op) if v.type.dtype.is_float}
    return min(dtypes, key=lambda dtype: (dtype.itemsize, dtype.text), default=DType.FP32)


def _elements(op: PlannedOp, sizes: Mapping[str, int]) -> int:
    """Return one operation per element of the largest result; 0 for matrix products."""
    if _multiplications(op) is not None:
        return 0
    results = (value.type.numel for slot in op.outputs.values() for value in slot)
    return max((evaluate(numel, sizes) for numel in results), default=0)


def _multiplications(op: PlannedOp) -> Any:
    owner = op.defn.origin if isinstance(op.defn, GradOp) else op.defn
    return getattr(owner, "multiplications", None)


def _products(op: PlannedOp, sizes: Mapping[str, int]) -> int:
    """Return the operations of a matrix product or its gradients, each of the same cost."""
    count = _multiplications(op)
    if count is None:
        return 0
    times = sum(map(bool, op.outputs.values())) if isinstance(op.defn, GradOp) else 1
    return 2 * times * evaluate(count(_shapes(op)), sizes)


def _shapes(op: PlannedOp) -> dict[str, Shape]:
    """Return the shape of each slot of an op; gradient slots have the forward op's names."""
    slots = (*op.inputs.items(), *op.outputs.items())
    return {s.removesuffix("@GRAD"): v[0].type.shape for s, v in slots if v}


# ---- steps by their native kernels -------------------------------------------------------------


def native_calls(plan: Plan, machine: Machine | None = None) -> dict[int, list[KernelCall]]:
    """The calls of native kernels in a plan, in order, by the number of their step."""
    calls: dict[int, list[KernelCall]] = {}
    for each in NativeTarget(machine).module_writer(plan).costs:
        calls.setdefault(each.step, []).append(each)
    return calls


def _native_step(step: Step, calls: Sequence[KernelCall], sizes: Mapping[str, int]) -> StepCost:
    """Return the cost of a step from its native kernels; without kernels it runs in NumPy.

    Of the bytes that kernels move, those of the step's outputs are written, by the last kernels.
    """
    least = _minimum_cost(step, sizes, Side.HOST)
    if not calls:
        return least
    left, costs = least.least_written, list[Cost]()
    for call in reversed(calls):
        flops, nbytes = call_cost(call, sizes)
        written = min(left, nbytes)
        left -= written
        costs.append(Cost(call.name, nbytes - written, written, flops))
    return StepCost(tuple(costs[::-1]), least.least_read, least.least_written)


def call_cost(call: KernelCall, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The operations and bytes of a call, with all its repetitions.

    0 if they depend on sizes that are known in a run only.
    """
    values = {**dict.fromkeys(BLOCK.names, 0), **sizes}
    try:
        repeats, flops, nbytes = (
            evaluate(count, values)
            for count in (call.repeats, call.kernel.flops, call.kernel.nbytes)
        )
    except KeyError:
        return 0, 0
    return repeats * flops, repeats * nbytes


# ---- steps by their kernels --------------------------------------------------------------------


def _device_step(
    step: Step, kernels: Sequence[tuple[str, KernelTraffic]], sizes: Mapping[str, int]
) -> StepCost:
    """Return the cost of a device step; the minimum if sizes of its kernels are known only in a
    run.
    """
    try:
        return _kernel_costs(step, kernels, sizes)
    except KeyError:
        return _minimum_cost(step, sizes, Side.DEVICE)


def _kernel_costs(
    step: Step, kernels: Sequence[tuple[str, KernelTraffic]], sizes: Mapping[str, int]
) -> StepCost:
    """Return the cost of a step from its generated kernels; views have none."""
    costs = tuple(_cost(name, traffic, sizes) for name, traffic in kernels)
    reads = _by_storage((a for _, t in kernels for a in t.reads), sizes)
    writes = _by_storage((a for _, t in kernels for a in t.writes), sizes)
    return StepCost(
        costs,
        _accessed_bytes(_inputs(step), reads, sizes),
        _accessed_bytes(_outputs(step), writes, sizes),
    )


def _cost(name: str, traffic: KernelTraffic, sizes: Mapping[str, int]) -> Cost:
    operations = sum(
        times * evaluate(product(factors), sizes) for factors, times in traffic.operations.items()
    )
    products = 0 if traffic.products is None else evaluate(product(traffic.products), sizes)
    read, written = _sum(traffic.reads, sizes), _sum(traffic.writes, sizes)
    return Cost(name, read, written, operations, 2 * products, traffic.factor)


def _sum(accesses: Iterable[MovedElements], sizes: Mapping[str, int]) -> int:
    """Return the bytes moved: in one run, no element of a value is loaded or stored twice."""
    runs: dict[tuple[Storage, int], list[MovedElements]] = defaultdict(list)
    for access in accesses:
        runs[access.storage, access.run].append(access)
    return sum(_moved(run, sizes) for run in runs.values())


def _moved(accesses: Sequence[MovedElements], sizes: Mapping[str, int]) -> int:
    """Return the bytes of the accessed elements of one value, at most all of them."""
    numel = max(evaluate(access.numel, sizes) for access in accesses)
    touched = sum(evaluate(product(access.touched), sizes) for access in accesses)
    return min(numel, touched) * accesses[0].itemsize


def _by_storage(accesses: Iterable[MovedElements], sizes: Mapping[str, int]) -> dict[Storage, int]:
    by_storage: dict[Storage, list[MovedElements]] = defaultdict(list)
    for access in accesses:
        by_storage[access.storage].append(access)
    return {storage: _moved(group, sizes) for storage, group in by_storage.items()}


def _accessed_bytes(
    values: Iterable[PlannedValue], touched: Mapping[Storage, int], sizes: Mapping[str, int]
) -> int:
    """Return the bytes of values that are accessed, each element once."""
    return sum(min(_bytes(value, sizes), touched.get(value.storage, 0)) for value in values)
