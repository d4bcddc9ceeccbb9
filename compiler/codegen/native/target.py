"""The native target: machine code for CPUs, NumPy for ops without kernels, in one step function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from compiler.codegen.assemble import Style, assemble
from compiler.codegen.kernel.epilogues import FusedEpilogue, fused_name
from compiler.codegen.kernel.pointwise import kernels_of
from compiler.codegen.kernel.step_kernels import StepKernels
from compiler.codegen.kernel.support import has_kernel_body, why_no_kernel
from compiler.codegen.module import Module, ir_lines
from compiler.codegen.module_writer import ModuleWriter
from compiler.codegen.nan_checks import check_outputs
from compiler.codegen.native.accesses.checks import ChangedNumbers
from compiler.codegen.native.builder import NativeKernelBuilder
from compiler.codegen.native.checks.step_checks import compared_with_reference
from compiler.codegen.native.commands.repeated_steps import Stored
from compiler.codegen.native.element_types import COMPUTED
from compiler.codegen.native.global_reductions import global_reduction
from compiler.codegen.native.host import host_machine
from compiler.codegen.native.kernel import OnKernel
from compiler.codegen.native.llvm_ir import I8
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.native.products.dots import dot_of
from compiler.codegen.numpy import STYLE as NUMPY_STYLE
from compiler.codegen.numpy import emit_step
from compiler.codegen.value_checks import numbers, values_to_check, write_checks
from compiler.errors import CompileError, ShapeError
from compiler.ir.attention import AttentionSupport
from compiler.ir.graph import Op
from compiler.ir.opdef import HostOp, OpDef, has
from compiler.ir.opdef.global_reductions import Whole
from compiler.ir.types import DType
from compiler.plan import Plan, PlannedOp, Step, StorageKind
from compiler.support.escape import one_line
from compiler.support.thresholds import threshold

_SCRIPT = Path(__file__).with_name("script.py.txt").read_text(encoding="utf-8")
"""The code that runs when a module is executed as a script."""

TYPES = frozenset(DType) - {DType.TOKEN}
"""The element types of kernels."""


class NativeTarget:
    """Code generator for machine code of CPUs; other ops run in NumPy, in the same memory.

    `machine` is the CPU to generate for, by default the most capable level that this one has.
    `on_kernel`, if not None, is called with the name, the IR text and the machine of each kernel as
    soon as it is written: again where a module is written once more, and also for ops that then run
    in NumPy. With `compares`, all plans are `compared`. Steps of earlier modules are `stored`.
    """

    name = "native"
    on_device = False
    attention = AttentionSupport(COMPUTED, COMPUTED)
    libraries = None

    def __init__(
        self,
        machine: Machine | None = None,
        on_kernel: OnKernel | None = None,
        compares: bool = False,
        stored: Stored | None = None,
    ) -> None:
        self._machine = machine
        self._on_kernel = on_kernel
        self._compares = compares
        self._stored = stored

    @property
    def multiplies_bytes(self) -> bool:
        """True if the CPU has dot products of bytes."""
        return dot_of(self._machine or host_machine(), I8) is not None

    def supports(self, op: Op) -> str:
        """Empty for an op with kernels; otherwise the reason it has none."""
        if op.body is not None:
            return "control flow runs in Python"
        if op.defn.is_random and "Key" in op.defn.slots and not op.inputs.get("Key"):
            return "it draws from NumPy's generator"
        if op.defn.is_ordered():
            return "collectives run in Python"
        return why_no_kernel(op, TYPES, self.writes(type(op.defn)))

    def writes(self, defn: type[OpDef]) -> bool:
        """True if an op has kernels for at least some attributes and types.

        The bodies of ops that run for their effect are code of a device.
        """
        return has_kernel_body(defn) and not issubclass(defn, HostOp)

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """Generate the module of a plan; `poison` and `check_numbers` as in NumpyTarget.

        With `poison`, kernels also compare every load and store with the bounds of its array; not
        if the plan is `compared`, whose kernels are those of ordinary runs.
        """
        plan = replace(plan, compared=plan.compared or self._compares)
        bounds = poison and not plan.compared
        return self._written(plan, poison, bounds, check_numbers)[1]

    def module_writer(self, plan: Plan) -> NativeModuleWriter:
        """The writer of a plan's module: its kernels, their costs, and the steps in NumPy."""
        return self._written(plan)[0]

    def _written(
        self, plan: Plan, poison: bool = False, bounds: bool = False, check_numbers: bool = False
    ) -> tuple[NativeModuleWriter, Module]:
        """Write the module of a plan.

        Steps that have no kernels after all run in NumPy: the module is then written once more, so
        that nothing of what was written for them is left. All that one attempt finds are taken
        together, so that few attempts are made.
        """
        machine, fallbacks = self._machine or host_machine(), _too_many_operands(plan)
        writer: NativeModuleWriter | None = None
        while True:
            writer = NativeModuleWriter(
                plan, machine, bounds, self._on_kernel, fallbacks, writer, self._stored
            )
            writer.expects_numbers = check_numbers
            try:
                module = _module(plan, writer, poison)
            except CompileError:
                if not writer.refused:
                    raise
            else:
                if not writer.refused:
                    return writer, module
            fallbacks = fallbacks | writer.refused


def _too_many_operands(plan: Plan) -> dict[int, str]:
    """The steps with kernels that would have many operands, and why they run in NumPy."""
    counts = {
        step.index: max(len(op.values) for op in step.ops)
        for step in plan.steps
        if step.ops[0].target
    }
    return {
        index: f"the code of its kernels would grow with each of its {count} tensors"
        for index, count in counts.items()
        if count > MANY_OPERANDS.value
    }


def _module(plan: Plan, writer: NativeModuleWriter, poison: bool = False) -> Module:
    """The module of a plan, whose steps are written by `writer`."""
    name = writer.machine.name
    style = Style(
        "native", f"for CPUs with {name}", NUMPY_STYLE.imports, _SCRIPT,
        lambda: _code(writer),
    )  # fmt: skip
    module = assemble(plan, writer, _emit, style, poison)
    checked = writer.checks_bounds
    return replace(
        module, machine=name, kernels_ir=dict(writer.written.texts), checks_bounds=checked
    )


def _code(writer: NativeModuleWriter) -> list[str]:
    """The lines that assign the machine, and the LLVM IR of every kernel."""
    checked = ["CHECKS_BOUNDS = True"] * writer.checks_bounds
    return ["", "", f"MACHINE = {writer.machine.name!r}", *checked, *ir_lines(writer.written.texts)]


MANY_OPERANDS = threshold(
    "operands", 256, "tensors", "an op with more runs in NumPy: its kernels would grow with each",
    small=24,
)  # fmt: skip


# ---- steps -------------------------------------------------------------------------------------


def _emit(writer: ModuleWriter, step: Step) -> None:
    """Emit kernels for a step of native ops, NumPy for others.

    If it has no kernels, the writer has the reason, and NumPy is written behind what there is.
    """
    assert isinstance(writer, NativeModuleWriter)
    why = writer.fallbacks.get(step.index)
    if why is not None:
        writer.line(f"# in NumPy: {one_line(why)}")
    if why is not None or not step.ops[0].target:
        _emit_in_numpy(writer, step)
        writer.define_output_sizes(step)
        return
    named = replace(step, ops=tuple(map(writer.named, step.ops)))
    writer.comments, start = [op.comment for op in step.ops], len(writer.body.lines)
    try:
        _check_values(writer, named)
        with compared_with_reference(writer, named):
            _emit_repeated(writer, named)
    except NotLowered as why:
        if not (writer.refused and isinstance(why, ChangedNumbers)):
            writer.refused[step.index] = why.message
        _emit_in_numpy(writer, step)
    except ShapeError as error:
        texts, source = " and ".join(op.text for op in step.ops), step.ops[-1].source
        raise ShapeError(
            error.message, op=error.op or texts, source=error.source or source
        ) from error
    if any(value.type.is_open for op in step.ops for value in op.values):
        _allocate_empty(writer, named)
        writer.name_ops(start)
    check_outputs(writer, named)
    writer.define_output_sizes(step)


def _check_values(writer: NativeModuleWriter, step: Step) -> None:
    """Write the checks of a step's ops: before the sequence begun if they concern feeds alone.

    Raises NotLowered if a number to check is never stored.
    """
    for op in step.ops:
        if not (values := values_to_check(writer, op)):
            continue
        places = {value.place for value in numbers(values)}
        if StorageKind.INNER in places:
            raise NotLowered(f"{op.kind} checks numbers that are not stored")
        with writer.checks(op, places <= {StorageKind.FEED}):
            write_checks(writer, op, values)


def _allocate_empty(writer: NativeModuleWriter, step: Step) -> None:
    """Allocate the outputs that no kernel writes, since they have no elements."""
    for value in (value for op in step.ops for values in op.outputs.values() for value in values):
        is_local = value.place is StorageKind.LOCAL and not value.type.is_array
        if is_local and writer.placed(value) is None:
            writer.operand(value)


def _emit_in_numpy(writer: NativeModuleWriter, step: Step) -> None:
    kinds = (op.kind for op in step.ops if op.kind != "delete_var")
    writer.uncompared |= dict.fromkeys(kinds, "in NumPy")
    emit_step(writer, step)


def _emit_repeated(writer: NativeModuleWriter, step: Step) -> None:
    """Emit the kernels of a step, by the commands of an equal one where there is one."""
    if writer.checks_bounds or writer.compares:
        _emit_native(writer, step)
    else:
        writer.repeated.write(step, lambda: _emit_native(writer, step))


def _emit_native(writer: NativeModuleWriter, step: Step) -> None:
    first = step.ops[0]
    if isinstance(first.defn, Whole) and not has(first.defn, "kernel"):
        for kernel in global_reduction(writer, first):
            writer.loops(kernel)
    else:
        NativeKernels(writer).write(step)


class NativeKernels(StepKernels):
    """Writes the kernels of steps as LLVM IR."""

    def __init__(self, writer: NativeModuleWriter) -> None:
        super().__init__(writer)
        self._native = writer

    def pointwise(self, step: Step) -> None:
        """Write a loop nest for each shape."""
        for kernel in kernels_of(step, fused_name(step.ops), self._native):
            self._native.loops(kernel, exactly=True)

    def builder(
        self, ops: Sequence[PlannedOp], epilogue: FusedEpilogue | None
    ) -> NativeKernelBuilder:
        """Return the kernel builder of an op with its epilogue."""
        return NativeKernelBuilder(self._native, ops[0], fused_name(ops), epilogue)
