"""Plan: steps in order, what each reads and writes, and buffers with their live ranges.

`compiler.freeze` creates it from a graph. Sizes remain expressions of the symbolic sizes that
binding determines.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import groupby
from typing import TypeAlias

from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef
from compiler.ir.region import WHOLE, Region
from compiler.ir.types import TensorType
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line


@dataclass(frozen=True)
class Tensor:
    """A named array of a module's interface: a feed, persistable state, or a fetch.

    `dtype` is NumPy's name. `given` is true for state that must exist before the first step; state
    that a step writes before it reads it is allocated if missing. `fixed` is true for state that no
    step writes, `escapes` for state that a step passes to Python functions, which may keep it.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    given: bool = False
    on_device: bool = False
    fixed: bool = False
    escapes: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory in the arena of the host or the device: `nbytes`, live in `start <= step < stop`."""

    name: str
    nbytes: Size
    start: int
    stop: int
    on_device: bool = False


class StorageKind(Enum):
    """Kind of storage that holds a value."""

    FEED = "feed"
    PARAM = "param"
    BUFFER = "buffer"
    LOCAL = "local"
    INNER = "inner"


Storage: TypeAlias = tuple[StorageKind, "str | int", Region]


@dataclass(frozen=True)
class PlannedValue:
    """A frozen var. Two values share memory only if `place` and `home` are equal.

    `home` is the buffer's index, the param's name, or the label of a separately allocated value;
    `region` selects bytes of the buffer. `INNER` values have no memory: they exist only inside
    their kernel.
    """

    label: str
    type: TensorType
    place: StorageKind
    home: str | int
    on_device: bool = False
    region: Region = WHOLE

    @property
    def memory(self) -> int | None:
        """Index of its buffer; None if it is not in a buffer."""
        return int(self.home) if self.place is StorageKind.BUFFER else None

    @property
    def storage(self) -> Storage:
        """Key that is equal for two values exactly if they start at the same byte of the same
        memory.
        """
        return (self.place, self.home, self.region)


@dataclass(frozen=True)
class PlannedOp:
    """A frozen op: its definition and the values in its slots.

    `body` is the steps of its block, `given` the body's values that are read from a saved run, and
    `kept` those that are saved in each run. `target` is the code generator it is assigned to, ""
    for the host's, and `part` its index among structurally equal kernels that share one launch.
    """

    kind: str
    defn: OpDef
    inputs: Mapping[str, tuple[PlannedValue, ...]]
    outputs: Mapping[str, tuple[PlannedValue, ...]]
    source: str
    text: str
    target: str = ""
    part: int | None = None
    body: tuple[Step, ...] = ()
    given: tuple[PlannedValue, ...] = ()
    kept: tuple[PlannedValue, ...] = ()

    @property
    def comment(self) -> str:
        """Its text, and the user's line if known, for comments of generated code."""
        return self.text + f"  {self.source}" * bool(self.source)

    @property
    def values(self) -> list[PlannedValue]:
        """All values it reads and writes."""
        both = (self.inputs, self.outputs)
        return [value for slots in both for values in slots.values() for value in values]


@dataclass(frozen=True)
class Step:
    """One kernel: an op, or fused pointwise ops. Values in `dying` are not read later."""

    index: int
    ops: tuple[PlannedOp, ...]
    dying: frozenset[PlannedValue] = frozenset()

    @property
    def parts(self) -> list[tuple[PlannedOp, ...]]:
        """The ops of each kernel that shares this launch; a single group if there is one kernel."""
        return [tuple(part) for _, part in groupby(self.ops, key=lambda op: op.part)]


@dataclass(frozen=True)
class Plan:
    """Everything a target needs to generate code, immutable.

    `fetches` are the names under which `results` are returned. `constants` names the params whose
    values never change, `watched` those whose values change only between runs, and are watched for
    it. `in_order` requires sums to be accumulated in the same order in every run,
    `tf32` lets float32 products round their operands to 10 bits of mantissa, `exact_products` keeps
    them from being computed by bfloat16 parts, `winograd` lets convolutions use Winograd's
    algorithm. `gpu` is the GPU whose measured tiles are used, `tiles` are measured products in
    addition. `captured` lets a step be captured as a CUDA graph;
    `compared` compares the outputs of native steps with the reference implementations of their ops.
    """

    name: str
    dims: tuple[str, ...]
    feeds: tuple[PlannedValue, ...]
    params: tuple[Tensor, ...]
    results: tuple[PlannedValue, ...]
    fetches: tuple[str, ...]
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    constants: frozenset[str] = frozenset()
    watched: frozenset[str] = frozenset()
    in_order: bool = False
    tf32: bool = False
    exact_products: bool = False
    gpu: str = ""
    tiles: str = ""
    winograd: bool = True
    captured: bool = False
    compared: bool = False

    def __str__(self) -> str:
        return _show(self)


def tensor(name: str, type: TensorType, given: bool = False, on_device: bool = False) -> Tensor:
    """Return a tensor of a module's interface with a type."""
    return Tensor(name, type.dtype.numpy.name, type.shape, given, on_device)


# ---- text --------------------------------------------------------------------------------------


def _show(plan: Plan) -> str:
    """Return a plan as text: buffers with live ranges, then the steps."""
    lines = [f"plan {one_line(plan.name)}({', '.join(plan.dims)}) {{"]
    lines += [f"  feed {value.label}: {value.type}" for value in plan.feeds]
    lines += [f"  param {_tensor_text(param)}" for param in plan.params]
    lines += [f"  buffer {i}: {b.nbytes} bytes, steps {b.start}..{b.stop - 1}"
              for i, b in enumerate(plan.buffers)]  # fmt: skip
    for step in plan.steps:
        lines += _show_step(step, "  ")
    lines += [f"  return {', '.join(_show_value(value) for value in plan.results)}", "}"]
    return "\n".join(lines) + "\n"


def _tensor_text(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return f"{one_line(tensor.name)}: {tensor.dtype}[{shape}]" + (
        "" if tensor.given else " (allocated by the module)"
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


def _show_value(value: PlannedValue) -> str:
    where = f"@{value.home}{value.region}" if value.place is StorageKind.BUFFER else ""
    return value.label + where
