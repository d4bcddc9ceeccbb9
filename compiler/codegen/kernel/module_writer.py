"""Writer of a module with kernels: data-dependent sizes, and values on a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compiler.codegen.module_writer import ModuleWriter
from compiler.ir.dims import Dim, Size, names_of, renamed
from compiler.ir.opdef.size_comparison import Relation, Requirement
from compiler.ir.types import TensorType
from compiler.plan import Plan, PlannedOp, PlannedValue, Step


def expect_shape(found: tuple[int, ...], shape: tuple[int | None, ...], what: str) -> None:
    """Raise ValueError unless a result has a shape; None is any size."""
    pairs = zip(found, shape, strict=False)
    if len(found) != len(shape) or any(size not in (number, None) for number, size in pairs):
        expected = tuple("any" if size is None else size for size in shape)
        raise ValueError(
            f"{what!r} has the shape {found}, but kernels that read it need {expected}"
        )


def kernel_types(plan: Plan) -> list[TensorType]:
    """The types of the operands of ops that have kernels."""
    ops = (op for step in plan.steps for op in step.ops if op.target)
    return [value.type for op in ops for value in op.values]


class KernelModuleWriter(ModuleWriter):
    """Writes a module whose ops may launch kernels over data-dependent sizes.

    `reserved` names are those that the module uses itself.

    Data-dependent sizes, `?1`, have names in the step from where they are known: from the shapes of
    host results, or set by ops before they launch a kernel.
    """

    def __init__(self, plan: Plan, reserved: Iterable[str] = ()) -> None:
        super().__init__(plan.dims, plan.buffers)
        self.names.taken |= {*reserved}
        self.in_order = plan.in_order
        numbers = dict.fromkeys(name for type in kernel_types(plan) for name in type.names)
        self.sizes = {n: self.names.make("size") for n in numbers if n.startswith("?")}
        self.defined_sizes: set[Size] = set()
        self.loop_sizes: set[str] = set()

    # ---- sizes ----

    def known_size(self, size: Size) -> Size | None:
        """A size in terms of names in scope, data-dependent ones included that are defined."""
        named = renamed(size, self.sizes)
        return named if named in self.defined_sizes else super().known_size(named)

    def named(self, op: PlannedOp) -> PlannedOp:
        """Return the op with its data-dependent sizes replaced by their names in the step."""
        inputs, outputs = (
            {slot: tuple(map(self._named, values)) for slot, values in side.items()}
            for side in (op.inputs, op.outputs)
        )
        return replace(op, inputs=inputs, outputs=outputs)

    def _named(self, value: PlannedValue) -> PlannedValue:
        if not value.type.is_open or value.type.is_array:
            return value
        shape = [renamed(size, self.sizes) for size in value.type.shape]
        return replace(value, type=value.type.with_shape(shape))

    def define_output_sizes(self, step: Step) -> None:
        """Define the data-dependent sizes that the outputs of a host step determine."""
        outputs = (v for op in step.ops for values in op.outputs.values() for v in values)
        for value in (
            v for v in outputs if v.type.is_open and not (v.type.is_array or v.on_device)
        ):
            shape = [renamed(size, self.sizes) for size in value.type.shape]
            is_new = len({*shape}) == len(shape) and not any(map(self._is_known, shape))
            for axis, size in enumerate(shape):
                self.define_size(size, f"{self.operand(value)}.shape[{axis}]")
            if not is_new and {*shape} & self.defined_sizes:
                self._check_shape(value, shape)

    def _check_shape(self, value: PlannedValue, shape: Sequence[Size]) -> None:
        """Write that a host result that kernels read has the sizes that were known before it."""
        sizes = ", ".join(str(size if self._is_known(size) else None) for size in shape)
        actual = f"{self.operand(value)}.shape, ({sizes}{',' * (len(shape) == 1)})"
        self.line(f"{self.function(expect_shape)}({actual}, {value.label!r})")

    def _is_known(self, size: Size) -> bool:
        return self.known_size(size) is not None

    def define_size(self, size: Size, expression: str) -> None:
        """Assign a data-dependent size from an expression, once."""
        names = [Dim.named(name) for name in self.sizes.values()]
        if size in names and size not in self.defined_sizes:
            self.defined_sizes.add(size)
            self.line(f"{size} = {expression}")

    def expect_at_most(self, size: Size, limit: Size) -> None:
        """Require a size that only a step knows to be at most another; here, take it that it is."""

    def expect_size(self, what: str, size: Size, expected: Size) -> None:
        """Write into `bind` that two sizes must be equal, unless only a step knows them."""
        names = names_of(size, expected)
        if size != expected and names and names <= self.bound_dims:
            text = f"{what}: {{{size}}}, expected {{{expected}}}"
            self.expect(Requirement(Relation.EQUAL, (size, expected)), text)
