"""The scopes of a module of Triton kernels: values of the device, sizes that turn up in a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.bind_and_run import Frame, NumpyOperand, shape_text
from compiler.codegen.triton.emit import Written
from compiler.codegen.triton.helpers import GLOBALS, HELPERS, with_needed
from compiler.codegen.triton.kernel_sharing import Key, likeness
from compiler.escape import expect_one_line
from compiler.ir.dims import Dim, Size, renamed
from compiler.ir.region import WHOLE
from compiler.ir.types import DType, TensorType
from compiler.plan import Place, Plan, PlannedOp, Step, Value

_SMALL = 2**31
"""Elements below which a kernel counts them in 32 bits."""

_TAKEN = frozenset(
    "torch triton tl addressed upload download uploaded tensor_over room INDEX".split()
)
"""Names that modules use themselves, besides those of NumPy code."""


def _device_types(plan: Plan) -> list[TensorType]:
    """The types of what ops of the device read and write."""
    ops = (op for step in plan.steps for op in step.ops if op.target)
    return [value.type for op in ops for value in op.values]


class TritonFrame(Frame):
    """A frame in which values of the device are torch tensors, and kernels are collected.

    Sizes that only data decides, `?1`, have names in the step from where they are known on: the
    shapes of arrays that the host makes, and what ops say of sizes before they launch a kernel.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.dims, plan.buffers)
        self.names.taken |= {*_TAKEN, *HELPERS, *GLOBALS}
        self.in_order = plan.in_order
        self.precision = "tf32" if plan.tf32 else "ieee"
        self.known: set[str] = set()
        self.launched: list[tuple[int, Written]] = []
        self.written: dict[Key, str] = {}
        self.fixed = {*plan.dims}
        numbers = dict.fromkeys(name for type in _device_types(plan) for name in type.names)
        self.sizes = {n: self.names.make("size") for n in numbers if n.startswith("?")}
        self.told: set[Size] = set()
        self.varying: set[str] = set()
        self._index(plan)

    def _index(self, plan: Plan) -> None:
        """What kernels count elements in: 64 bits where a value has so many."""
        types = {value.type for step in plan.steps for op in step.ops for value in op.values}
        counts = {type.numel for type in types if not type.is_open}
        fixed = max((n for n in counts if isinstance(n, int)), default=0)
        open_counts = sorted(str(n) for n in counts if isinstance(n, Dim))
        if fixed >= _SMALL:
            self.setup.line("INDEX = tl.int64")
        elif not open_counts:
            self.setup.line("INDEX = tl.int32")
        else:
            largest = f"max({', '.join(open_counts)}, 0)"
            self.setup.line(f"INDEX = tl.int32 if {largest} < {_SMALL} else tl.int64")

    # ---- sizes ----

    def named(self, op: PlannedOp) -> PlannedOp:
        """An op whose values have sizes that the step knows by name."""
        inputs, outputs = (
            {slot: tuple(map(self._named, values)) for slot, values in side.items()}
            for side in (op.inputs, op.outputs)
        )
        return replace(op, inputs=inputs, outputs=outputs)

    def _named(self, value: Value) -> Value:
        if not value.type.is_open or value.type.is_array:
            return value
        shape = [renamed(size, self.sizes) for size in value.type.shape]
        return replace(value, type=value.type.with_shape(shape))

    def measure(self, step: Step) -> None:
        """Name the sizes that arrays tell which a step of the host has made."""
        made = (v for op in step.ops for values in op.outputs.values() for v in values)
        for value in (v for v in made if v.type.is_open and not (v.type.is_array or v.on_device)):
            for axis, size in enumerate(value.type.shape):
                self.tell(renamed(size, self.sizes), f"{self.operand(value)}.shape[{axis}]")

    def tell(self, size: Size, expression: str) -> None:
        """Say what a size is that has no more than a name, once."""
        names = [Dim.named(name) for name in self.sizes.values()]
        if size in names and size not in self.told:
            self.told.add(size)
            self.line(f"{size} = {expression}")

    # ---- values ----

    def _place(self, value: Value, name: str) -> NumpyOperand:
        if value.on_device and value.place is Place.LOCAL:
            return self.room_there(name, value.type, value)
        return super()._place(value, name)

    def room_there(self, name: str, type: TensorType, value: Value | None = None) -> NumpyOperand:
        """Device memory of its own for the rest of the step."""
        given = f"{type.dtype.numpy.name!r}, {shape_text(type.shape)}"
        is_fixed = {*type.names} <= self.fixed
        text = f"take(None, {given})" if is_fixed else f"room(take, {given}, INDEX)"
        self.line(f"{name} = {text}")
        storage = (Place.LOCAL, name, WHOLE) if value is None else value.storage
        return NumpyOperand(self, name, type, False, storage)

    def scratch(
        self, shape: Sequence[Size], dtype: DType, *, on_device: bool = False
    ) -> NumpyOperand:
        """Working memory for the current step: of an arena, if its size is known at binding."""
        type = TensorType(dtype, tuple(shape))
        if {*type.names} <= self.fixed:
            return super().scratch(shape, dtype, on_device=on_device)
        return self.room_there(self.names.make(f"t{self.step}"), type)

    # ---- kernels ----

    def launch(self, source: Written) -> None:
        """Carry a kernel and the helpers it needs into the module, and call it in the step.

        One that is there already under another name is called by that.
        """
        key = likeness(source.lines, source.types, {**source.constants, **source.options})
        if key not in self.written:
            self.written[key] = source.name
            self._carry(source)
        name = self.written[key]
        self.launched.append((self.step, replace(source, name=name)))
        self.line(name + source.launch.removeprefix(source.name))

    def _carry(self, source: Written) -> None:
        for helper in with_needed(source.helpers):
            if helper not in self.known:
                self.known.add(helper)
                self.functions.append(f"@triton.jit\n{HELPERS[helper]}")
                named = [line for name, line in GLOBALS.items() if name in HELPERS[helper]]
                self.globals += [line for line in named if line not in self.globals]
        self.functions.append("\n".join(map(expect_one_line, source.lines)))
        self.kernels.append((source.name, source.types, source.constants, source.options))
