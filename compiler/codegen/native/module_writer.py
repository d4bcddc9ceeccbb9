"""Writer of a module with native kernels: sequences of commands, and the NumPy code between.

Consecutive kernels are commands of one sequence: arguments are resolved in `bind`, and the step
runs the sequence by one call. A line of NumPy ends the sequence, since it reads what kernels write.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from operator import add, sub

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.module_writer import KernelModuleWriter
from compiler.codegen.module_writer import NumpyOperand, shape_text
from compiler.codegen.native.accesses.checks import AccessChecks
from compiler.codegen.native.bounds.instrument import with_bounds_checks
from compiler.codegen.native.checks.reference_rows import CHECKS, checks_lines
from compiler.codegen.native.commands.repeated_steps import RecordedStep, RepeatedSteps, Stored
from compiler.codegen.native.commands.sequences import (
    Argument,
    Commands,
    KernelCall,
    RowLoop,
    StepWriter,
    site,
    tuple_text,
)
from compiler.codegen.native.element_types import dtype_of
from compiler.codegen.native.images.winograd import BLOCK, BlockedSteps
from compiler.codegen.native.kernel import KernelTexts, NativeKernel, OnKernel
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.loops import KernelLowering
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.contraction import Steps
from compiler.codegen.writer import Writer
from compiler.ir.dims import Dim, Size
from compiler.ir.region import WHOLE
from compiler.ir.types import DType, TensorType
from compiler.plan import Plan, PlannedOp, PlannedValue, StorageKind
from compiler.support.escape import one_line

STEP_DEPTH = 2
"""The depth of the lines of a step, inside `bind`."""
_TAKEN = frozenset({"native", "MACHINE", "KERNELS_IR", CHECKS, "StepChecks"})
"""Names that the module uses itself, in addition to those of NumPy code."""


class NativeModuleWriter(KernelModuleWriter):
    """Writes a module with native kernels, which it collects; their calls are sequences.

    With `checks_bounds` the kernels check all their accesses, and each call has what errors name.
    `on_kernel` is called with each kernel that is written. `fallbacks` are the steps that run in
    NumPy since they have no kernels, with the reasons. Kernels that an `earlier` writer of the same
    plan wrote are taken from it, and steps of earlier modules from those that are `stored`.
    """

    def __init__(
        self, plan: Plan, machine: Machine, checks_bounds: bool = False,
        on_kernel: OnKernel | None = None, fallbacks: Mapping[int, str] | None = None,
        earlier: NativeModuleWriter | None = None, stored: Stored | None = None,
    ) -> None:  # fmt: skip
        super().__init__(plan, _TAKEN)
        self.machine = machine
        self.checks_bounds = checks_bounds
        finish = with_bounds_checks if checks_bounds else str
        self.written = KernelTexts(machine, self.names.make, finish, on_kernel)
        self.fallbacks = fallbacks or {}
        self.comments: list[str] = []
        self.constants = plan.constants | plan.watched
        self.winograd, self.watched = plan.winograd, plan.watched
        self.compares = plan.compared
        self.globals += checks_lines(plan)
        self.uncompared: dict[str, str] = {}
        self.costs: list[KernelCall] = []
        self.refused: dict[int, str] = {}
        """The steps that cannot be written as kernels, with the reasons."""
        self._made, self._lowering = dict[Hashable, Steps](), KernelLowering(machine)
        if earlier is not None:
            self._made, self._lowering = earlier._made, earlier._lowering
        self._repeats: Size = 1
        self.recording: RecordedStep | None = None
        self.repeated = RepeatedSteps(self, stored)
        self.accesses = AccessChecks(self, checks_bounds, lambda text: self._loop.expect(text))
        self._prepared: dict[str, tuple[str, ...]] = {}
        self._before_loop: int | None = None
        self._loop = RowLoop()  # that of the step itself, which is written once
        self._called_step: int | None = None
        self._outer_depth = 0
        self._begun: Commands | None = None
        self._expected: dict[str, None] = {}
        self._of_operands, self._recorded = 0, tuple[int, ...]()
        """Lines of `bind` that name operands, and the extent of what else was recorded."""
        self.body = StepWriter(STEP_DEPTH, self.end_sequence)

    def operand(self, value: PlannedValue) -> NumpyOperand:
        """The operand for a value; its data-dependent sizes have their names in the step."""
        before = len(self.setup.lines)
        operand = super().operand(value)
        self._of_operands += len(self.setup.lines) - before
        if operand.type.is_open and not value.type.is_open:
            operand = NumpyOperand(self, operand.name, value.type, operand.steady, operand.storage)
        if self.recording is not None:
            self.recording.operand(value, operand)
        return operand

    def placed_type(self, value: PlannedValue) -> TensorType:
        """The type that the operand for a value has, or would have."""
        placed = self.placed(value)
        return value.type if placed is None else placed.type

    def holds_constant(self, value: PlannedValue) -> bool:
        """True for state whose values never change, or only between runs."""
        return value.place is StorageKind.PARAM and value.home in self.constants

    def context(self) -> Hashable:
        """What the code of a step depends on besides the step."""
        return self.machine, self.winograd, *self.required, *self.accesses.facts.sizes

    def extent(self) -> Hashable:
        """How much there is of all but what a recording has."""
        extent = self._extent()
        recorded = self._recorded or (0,) * len(extent)
        return tuple(map(sub, extent, recorded))

    def _extent(self) -> tuple[int, ...]:
        """How much there is of all but operands and commands."""
        kept, facts = [len(names) for names in self._kept], self.accesses.facts
        lines = len(self.setup.lines) - self._of_operands, len(self.body.lines), self.body.depth
        texts = len(self.buffers), len(self.functions), len(self.globals), len(self.kernels)
        sizes = len(self.required), len(self.bound_dims), len(self.defined_sizes)
        rest = len(self._prepared), len(facts.numbers), len(facts.sizes), len(self.uncompared)
        return *lines, *texts, *sizes, *rest, sum(kept)

    @contextmanager
    def _recording(self) -> Generator[RecordedStep | None]:
        """Write something inside that the recording, if there is one, has an event of."""
        recording = self.recording
        if recording is None:
            yield None
            return
        before = self._extent()
        yield recording
        grown = map(sub, self._extent(), before)
        self._recorded = tuple(map(add, grown, self._recorded or (0,) * len(before)))

    def scratch(
        self, shape: Sequence[Size], dtype: DType, *, on_device: bool = False
    ) -> NumpyOperand:
        """Allocate scratch for a step: in the arena, if its size is known at bind time."""
        type = TensorType(dtype, tuple(shape))
        if {*type.names} <= self.bound_dims:
            with self._recording() as recording:
                operand = super().scratch(shape, dtype)
                self.accesses.is_new(operand.name)
                if recording is not None:
                    recording.scratch(operand)
            return operand
        name = self.names.make(f"t{self.step}")
        self.accesses.is_new(name)
        self.line(f"{name} = {self.new_array(type.shape, dtype.numpy.name)}")
        self._loop.allocate(name, type.shape, dtype.numpy.name)
        return NumpyOperand(self, name, type, False, (StorageKind.LOCAL, name, WHOLE))

    # ---- kernels ----

    def kernel_name(self, kernel: NativeKernel) -> str:
        """The name of a kernel in the module; kernels of equal text are one."""
        return self.written.name(kernel)

    def command(self, kernel: NativeKernel, arguments: Sequence[Argument]) -> None:
        """Append a call of a kernel over all its units to the step."""
        if self.recording is not None:
            self.recording.command(kernel, arguments)
        name = self.kernel_name(kernel)
        self.costs.append(KernelCall(self.step, name, kernel, self._repeats))
        late = any(map(self._is_late, (*arguments, kernel.units)))
        if not late or self._sequence_takes(kernel.units):
            where = self._site(arguments)
            return self._sequence().append(name, kernel, arguments, self._is_late, where)
        self._comment_call()
        self.line(self._call(name, kernel, arguments))
        return self._loop.call(name, arguments, kernel.units, kernel.work)

    def _is_late(self, size: Argument) -> bool:
        """True for a size that only an array tells, in the step."""
        return isinstance(size, Dim) and bool({*size.names} - self.bound_dims)

    def _sequence_takes(self, units: Size) -> bool:
        """Whether late sizes can be given to a sequence; loops repeat commands instead."""
        return self.body.depth == STEP_DEPTH and not self.checks_bounds and not self._is_late(units)

    def _call(self, name: str, kernel: NativeKernel, arguments: Sequence[Argument]) -> str:
        """A call of one kernel in the step."""
        listed, where = tuple_text([*map(str, arguments)]), self._site(arguments)
        return f"native.call({name!r}, {listed}, {kernel.units}, {kernel.work}{where})"

    def _site(self, arguments: Sequence[Argument]) -> str:
        """What errors about a command name, in checking mode."""
        return f", {site(arguments, self.comments)}" if self.checks_bounds else ""

    def _sequence(self) -> Commands:
        """The sequence begun, or a new one; comments name the ops of the step, once in each."""
        begun = self._begun = self._begun or Commands([], [])
        if begun.step != self.step:
            begun.lines += self._comments()
            begun.step = self.step
        return begun

    def _comments(self) -> list[str]:
        """Comments that name the ops of the step."""
        return [f"# {one_line(comment)}" for comment in self.comments]

    def name_ops(self, start: int) -> None:
        """Name the ops of the step above its lines from `start` on, as errors of these lines do.

        The call of a sequence begun before the step may be the first of the lines.
        """
        lines, indent = self.body.lines, "    " * self.body.depth
        first = lines[start].lstrip().partition("(")[0] if start < len(lines) else ""
        if any(line.endswith(f"{first} = native([") for line in self.setup.lines):
            start += 1
        if start < len(lines) and not lines[start].lstrip().startswith("#"):
            named = [indent + comment for comment in self._comments()]
            lines[start:] = named + [line for line in lines[start:] if line not in named]

    def _comment_call(self) -> None:
        """Name the ops of the step above a call in it, once until a sequence runs."""
        self.end_sequence()
        if self._called_step != self.step:
            self.body.lines += ["    " * self.body.depth + comment for comment in self._comments()]
            self._called_step = self.step

    def prepared(
        self, kernel: NativeKernel, inputs: Sequence[NumpyOperand], sizes: Sequence[Size],
        shape: Sequence[Size], dtype: DType,
    ) -> NumpyOperand:  # fmt: skip
        """The output of a kernel, which takes its inputs, the output and sizes in this order:
        computed once if its inputs are constant, again when they changed if they are watched, else
        in every step.
        """
        is_known = all(not isinstance(size, Dim) for size in (*sizes, kernel.units))
        if not is_known or not all(map(self.is_constant, inputs)):
            out = self.scratch(shape, dtype)
            if self._before_loop is None or not all(operand.steady for operand in inputs):
                self.command(kernel, [*inputs, out, *sizes])
            else:
                self._call_before_loop(kernel, [*inputs, out, *sizes])
            return out
        listed = ", ".join(map(str, inputs)) + ","
        watched = tuple(dict.fromkeys(name for value in inputs for name in self._state_of(value)))
        form = f"{shape_text(shape)}, {dtype.numpy.name!r}" + f", {watched!r}" * bool(watched)
        form += f", sizes={shape_text(sizes)}" * bool(sizes)
        if self.checks_bounds:
            form += f", site={site([*inputs, 'its output', *sizes], self.comments)}"
        text = f"native.prepared({self.kernel_name(kernel)!r}, ({listed}), {kernel.units}, {form})"
        with self._recording() as recording:
            name = self.keep(text, True, StorageKind.PARAM, "prepared")
            self._prepared[name] = watched
            storage = StorageKind.LOCAL, name, WHOLE
            made = NumpyOperand(self, name, TensorType(dtype, tuple(shape)), True, storage)
            if recording is not None:
                recording.prepared(made, kernel, inputs, sizes)
        return made

    def _state_of(self, operand: NumpyOperand) -> tuple[str, ...]:
        """The watched state that a constant array is made of."""
        home = str(operand.storage[1])
        return self._prepared.get(operand.name, (home,) if home in self.watched else ())

    def _call_before_loop(self, kernel: NativeKernel, arguments: Sequence[Argument]) -> None:
        """Call a kernel before the loop that is being written."""
        assert self._before_loop is not None
        name = self.kernel_name(kernel)
        self.costs.append(KernelCall(self.step, name, kernel))
        text = self._call(name, kernel, arguments)
        lines = ["    " * self._outer_depth + line for line in (*self._comments(), text)]
        self.body.lines[self._before_loop : self._before_loop] = lines
        self._before_loop += len(lines)

    def made(self, make: Callable[..., Steps], *arguments: Hashable, **more: Hashable) -> Steps:
        """The kernels of a product or of images, which are written once for equal arguments."""
        key = (make, arguments, *sorted(more.items()))
        if key not in self._made:
            self._made[key] = make(*arguments, **more)
        return self._made[key]

    def steps(self, steps: Steps, arrays: Mapping[str, NumpyOperand], element: Type) -> None:
        """Append the calls of a product; `arrays` are its operands by name, but for scratch."""
        operands: dict[str, NumpyOperand] = dict(arrays)
        dtype = dtype_of(element)
        for call in steps.prepare:
            *inputs, out = [arg for arg in call.arguments if isinstance(arg, str)]
            sizes = [arg for arg in call.arguments if not isinstance(arg, str)]
            args = [operands[name] for name in inputs]
            operands[out] = self.prepared(call.kernel, args, sizes, (steps.scratch[out],), dtype)
        for name, count in steps.scratch.items():
            if name not in operands:
                operands[name] = self.scratch((count,), dtype)
        blocks = steps.blocks if isinstance(steps, BlockedSteps) else None
        if blocks is not None:
            self.begin_blocks(blocks)
        for call in steps.calls:
            listed = [operands[arg] if isinstance(arg, str) else arg for arg in call.arguments]
            self.command(call.kernel, listed)
        if blocks is not None:
            self.end_blocks()

    def begin_blocks(self, count: Size) -> None:
        """Repeat the commands that follow for each of `count` blocks, until `end_blocks`."""
        with self._recording() as recording:
            self._sequence().lines.append(f"*(each for {BLOCK} in range({count}) for each in (")
            self.bound_dims |= {*BLOCK.names}
            self._repeats = count
            if recording is not None:
                recording.blocks_begun(count)

    def end_blocks(self) -> None:
        """End what `begin_blocks` began."""
        self._sequence().lines.append(")),")
        self._repeats = 1
        if self.recording is not None:
            self.recording.blocks_ended()

    def shifted(self, operand: NumpyOperand, offset: Size) -> NumpyOperand:
        """The elements of an array from an offset on."""
        if offset == 0:
            return operand
        names = offset.names if isinstance(offset, Dim) else ()
        steady = operand.steady and {*names} <= self.bound_dims
        text = f"{operand}.reshape(-1)[{offset}:]"
        name = self.keep(text, True, StorageKind.BUFFER, f"{operand}_at") if steady else text
        self._loop.shift(text, operand, offset)
        return NumpyOperand(self, name, operand.type, steady, (StorageKind.LOCAL, name, WHOLE))

    @contextmanager
    def loop(self) -> Generator[RowLoop]:
        """Write a loop inside; what it prepares is written before it.

        Without bounds checks, a loop of calls becomes one repeated sequence.
        """
        self.end_sequence()
        outer = self._before_loop, self._outer_depth, self._loop
        self._before_loop, self._outer_depth = len(self.body.lines), self.body.depth
        self._loop = loop = RowLoop()
        try:
            yield loop
            head = self._before_loop
            repeated = None if self.checks_bounds else loop.repeated(self.body.lines[head:])
            if repeated is not None:
                self.body.lines[head:] = repeated
        finally:
            self._before_loop, self._outer_depth, self._loop = outer

    def varies_in_loop(self, size: Size) -> bool:
        """True for a size that each iteration of a loop has its own of, as time steps have rows."""
        return isinstance(size, Dim) and bool({*size.names} & self.loop_sizes)

    def is_constant(self, operand: NumpyOperand) -> bool:
        """True for state whose values never change, or only between runs."""
        place, home, _ = operand.storage
        return operand.name in self._prepared or (
            place is StorageKind.PARAM and home in self.constants
        )

    def finish(self) -> None:
        """End the sequence begun, and the comparisons of the step, if it is compared."""
        self.end_sequence()
        if self.compares:
            self.line(f"{CHECKS}.finish({self.uncompared!r})")

    def end_sequence(self) -> None:
        """Write the sequence begun: its commands in `bind`, its call in the step."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        self._called_step = None
        name = self.names.make("run")
        self.setup.line(f"{name} = native([")
        for line in begun.lines:
            self.setup.line("    " + line)
        self.setup.line("])")
        self.body.line(f"{name}({', '.join(begun.given)})")

    def keep(self, expression: str, steady: bool, place: StorageKind, hint: str) -> str:
        """Name an expression as other writers do; of feeds, before the sequence begun."""
        if steady or place is not StorageKind.FEED or self.body.depth != STEP_DEPTH:
            return super().keep(expression, steady, place, hint)
        step, self.body = self.body, Writer(STEP_DEPTH)
        name = super().keep(expression, steady, place, hint)
        step.lines += self.body.lines
        self.body = step
        return name

    @contextmanager
    def checks(self, op: PlannedOp, of_feeds: bool) -> Generator[None]:
        """Write the lines written inside, which check an op's numbers; equal ones of feeds once.

        Feeds do not change in a step, so their checks come before the sequence begun.
        """
        step, self.body = self.body, Writer(self.body.depth)
        yield
        checks, self.body = self.body.lines, step
        if of_feeds and step.depth == STEP_DEPTH:
            checks = [check for check in checks if check not in self._expected]
            self._expected |= dict.fromkeys(checks)
        if not checks:
            return
        if not of_feeds:
            self.end_sequence()
        comment = Writer(step.depth)
        comment.comment(op.comment)
        step.lines += [*comment.lines, *checks]

    def loops(self, kernel: KernelBody, exactly: bool = False) -> None:
        """Append a kernel as loops to the step; `exactly` as in `check_kernel`.

        Raises NotLowered for what loops cannot compute.
        """
        self.accesses.check_kernel(kernel, exactly)
        if kernel.is_empty:
            return
        for lowered in self._lowering.lower(kernel, self.scratch):
            self.command(lowered.kernel, lowered.arguments)

    def expect_at_most(self, size: Size, limit: Size) -> None:
        """Take it that a size that the host computes is at most another."""
        self.accesses.expect_at_most(size, limit)

    # ---- blocks ----

    def enter(self) -> None:
        """Begin a nested block."""
        self.end_sequence()
        super().enter()

    def leave(self) -> None:
        """End a block."""
        self.end_sequence()
        super().leave()
