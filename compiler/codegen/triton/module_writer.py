"""Writer of a module of Triton kernels: device values, and the kernels that it launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler.codegen.kernel.module_writer import KernelModuleWriter
from compiler.codegen.module_writer import NumpyOperand, shape_text
from compiler.codegen.triton.graph_segments import FixedLine, GraphSegments
from compiler.codegen.triton.helpers import GLOBALS, HELPERS, with_needed
from compiler.codegen.triton.kernel_sharing import Key, structural_key
from compiler.codegen.triton.kernel_source import KernelSource, Variants
from compiler.codegen.triton.tiling.measured import device_tiles
from compiler.ir.analysis.fixed_launches import why_not_fixed
from compiler.ir.analysis.placement import TO_HOST
from compiler.ir.dims import Dim, Size
from compiler.ir.region import WHOLE
from compiler.ir.types import DType, TensorType
from compiler.plan import Plan, PlannedValue, Step, StorageKind
from compiler.support.escape import expect_one_line
from compiler.support.thresholds import threshold

SMALL = threshold(
    "narrow_elements", 2**31, "elements",
    "kernels on a GPU whose tensors have so many use indices of 64 bits", small=64,
)  # fmt: skip

FETCHED = threshold(
    "fetched_bytes", 1 << 16, "bytes",
    "results on a GPU of fewer, known when compiled, are copied by way of the arena", small=16,
)  # fmt: skip

_TAKEN = frozenset(
    "torch triton tl addressed upload download fetch downloaded uploaded tensor_over room copies "
    "graph resident multiprocessors multiply INDEX".split()
)
"""Names that the module uses itself, in addition to those of NumPy code."""


class TritonModuleWriter(KernelModuleWriter):
    """Writes a module of Triton kernels, which it collects; device values are torch tensors."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, {*_TAKEN, *HELPERS, *GLOBALS})
        self.gpu = plan.gpu
        self.device = device_tiles(plan.gpu, plan.tiles, plan.exact_products)
        self.precision = "tf32" if plan.tf32 else "ieee"
        self.known: set[str] = set()
        self.launched: list[tuple[int, KernelSource]] = []
        self.kernel_names: dict[Key, str] = {}
        self._plan = plan
        self._downloads: set[int | str] = set()
        self._results = _read_by_caller(plan)
        self._segments = GraphSegments(self.body, self.names)
        self._is_fixed = False
        self._index(plan)

    def _index(self, plan: Plan) -> None:
        """Define the index type of kernels: 64 bits if a value has 2^31 elements or more."""
        types = {value.type for step in plan.steps for op in step.ops for value in op.values}
        counts = {type.numel for type in types if not type.is_open}
        fixed = max((n for n in counts if isinstance(n, int)), default=0)
        open_counts = sorted(str(n) for n in counts if isinstance(n, Dim))
        if fixed >= SMALL.value:
            self.setup.line("INDEX = tl.int64")
        elif not open_counts:
            self.setup.line("INDEX = tl.int32")
        else:
            largest = f"max({', '.join(open_counts)}, 0)"
            self.setup.line(f"INDEX = tl.int32 if {largest} < {SMALL.value} else tl.int64")

    # ---- values ----

    def _place(self, value: PlannedValue, name: str) -> NumpyOperand:
        if value.on_device and value.place is StorageKind.LOCAL:
            return self.device_buffer(name, value.type, value)
        return super()._place(value, name)

    def device_buffer(
        self, name: str, type: TensorType, value: PlannedValue | None = None
    ) -> NumpyOperand:
        """Allocate device memory outside the arena for the rest of the step."""
        arguments = f"{type.dtype.numpy.name!r}, {shape_text(type.shape)}"
        is_fixed = {*type.names} <= self.bound_dims
        text = f"take(None, {arguments})" if is_fixed else f"room(take, {arguments}, INDEX)"
        self.line(f"{name} = {text}")
        storage = (StorageKind.LOCAL, name, WHOLE) if value is None else value.storage
        return NumpyOperand(self, name, type, False, storage)

    def scratch(
        self, shape: Sequence[Size], dtype: DType, *, on_device: bool = False
    ) -> NumpyOperand:
        """Allocate scratch for the current step: in an arena, if its size is known at bind time."""
        type = TensorType(dtype, tuple(shape))
        if {*type.names} <= self.bound_dims:
            return super().scratch(shape, dtype, on_device=on_device)
        return self.device_buffer(self.names.make(f"t{self.step}"), type)

    # ---- copies ----

    def upload(self, out: NumpyOperand, array: str) -> None:
        """Copy an array, as source text, to the device."""
        text = f"upload({out}, {array})"
        self.fixed_line(text, FixedLine(out=str(out), array=array))

    def download(self, out: PlannedValue, tensor: NumpyOperand) -> None:
        """Copy a tensor to the host, where `wait_for_downloads` must precede reads."""
        if self._is_fetched(out):
            self._fetch(out, tensor)
            return
        if out.place is StorageKind.BUFFER:
            self._downloads.add(out.home)
        self.fixed_line(f"download({self.operand(out)}, {tensor})", FixedLine())

    def _is_fetched(self, out: PlannedValue) -> bool:
        """Whether only the caller reads a copy on the host, which may be large."""
        size = out.type.nbytes
        is_small = isinstance(size, int) and size < FETCHED.value
        return not is_small and out in self._results

    def _fetch(self, out: PlannedValue, tensor: NumpyOperand) -> None:
        """Copy a tensor to memory of the caller, which is the result instead of the buffer's."""
        buffer = self.operand(out)
        name = self.names.make(f"{out.label}_result")
        self.line(f"{name} = fetch({buffer}, {tensor})")
        self._operands[out] = replace(buffer, name=name, steady=False)

    def begin(self, step: Step) -> None:
        """Begin a step: wait for the downloads so far if it uses one of them on the host."""
        self._is_fixed = not any(map(why_not_fixed, step.ops))
        if not self._downloads.isdisjoint(_host_buffers(step)):
            self._wait()

    def _wait(self) -> None:
        self._downloads.clear()
        self.line("downloaded()")

    def finish(self) -> None:
        """Wait for downloads that are returned; collect what is captured as CUDA graphs."""
        if self._downloads:
            self._wait()
        if self._plan.captured:
            self._segments.write(self.setup)

    def fixed_line(self, text: str, line: FixedLine) -> None:
        """Write a line that does the same in each step, if the ops being written do."""
        if self._is_fixed:
            self._segments.line(text, line)
        else:
            self.line(text)

    # ---- kernels ----

    def launch(self, source: KernelSource) -> None:
        """Copy a kernel and its helpers into the module, and launch it in the step.

        A kernel that equals an earlier one is not copied; the earlier one is launched.
        """
        variants = source.variants
        constants = {**source.constants, **source.options}
        constants |= {} if variants is None else {"variants": variants.choice}
        key = structural_key(source.lines, source.types, constants)
        if key not in self.kernel_names:
            self.kernel_names[key] = source.name
            self._carry(source)
        name = self.kernel_names[key]
        self.launched.append((self.step, replace(source, name=name)))
        launch = name + source.launch.removeprefix(source.name)
        if variants is not None:
            launch = launch.replace(Variants.mark, self._chosen(name, variants))
        self.fixed_line(launch, FixedLine(is_launch=True))

    def _chosen(self, kernel: str, variants: Variants) -> str:
        """The name of the settings of a variant: in `bind` if the size is known there."""
        if not {*variants.size.names} <= self.bound_dims:
            name = self.names.make(f"{kernel}_tile")
            self.line(f"{name} = {variants.choice}")
            return name
        return self.keep(variants.choice, True, StorageKind.FEED, f"{kernel}_tile")

    def _carry(self, source: KernelSource) -> None:
        for helper in with_needed(source.helpers):
            if helper not in self.known:
                self.known.add(helper)
                self.functions.append(f"@triton.jit\n{HELPERS[helper]}")
                named = [line for name, line in GLOBALS.items() if name in HELPERS[helper]]
                self.globals += [line for line in named if line not in self.globals]
        self.functions.append("\n".join(map(expect_one_line, source.lines)))
        variants = source.variants
        alone = [(source.constants, source.options)]
        kernels = alone if variants is None else variants.kernels(source.constants)
        self.kernels += [(source.name, source.types, *settings) for settings in kernels]


def _read_by_caller(plan: Plan) -> frozenset[PlannedValue]:
    """The results in buffers of the host that no op reads or writes there, but for its copy."""
    used = {
        home for step in plan.steps for home in _host_buffers(step) if step.ops[0].kind != TO_HOST
    }
    values = (v for v in plan.results if v.place is StorageKind.BUFFER and not v.on_device)
    return frozenset(v for v in values if v.home not in used and v.region == WHOLE)


def _host_buffers(step: Step) -> Iterator[int | str]:
    """The buffers of the host that a step reads or writes, in bodies too."""
    for op in step.ops:
        yield from (v.home for v in op.values if v.place is StorageKind.BUFFER and not v.on_device)
        for inner in op.body:
            yield from _host_buffers(inner)
