"""Writes a step that equals an earlier one by the commands of that one, over its own values.

The layers of a network, or its pairs of fields, are steps that differ in nothing but the places of
their values. What is compared is all that the code of a step depends on: kinds, attributes, types,
and which values share memory. Only steps of floats, of sizes that are known when the module is
bound, whose code is nothing but commands, over their own values and what is made for them, are
written this way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.checks.reference_rows import has_plain_attributes
from compiler.codegen.native.commands.sequences import Argument
from compiler.codegen.native.kernel import NativeKernel
from compiler.ir.dims import Size
from compiler.ir.types import DType, TensorType
from compiler.plan import PlannedOp, PlannedValue, Step, StorageKind
from compiler.support.dataclass import dataclass

TRIES = 2
"""Steps of one form that are tried: the first may have what the module needs only once."""


class CommandWriter(Protocol):
    """Writes the commands of steps into a module."""

    bound_dims: set[str]
    recording: RecordedStep | None

    def context(self) -> Hashable:
        """What the code of a step depends on besides the step."""
        ...

    def operand(self, value: PlannedValue) -> NumpyOperand:
        """The operand for a value."""
        ...

    def placed_type(self, value: PlannedValue) -> TensorType:
        """The type that the operand for a value has, or would have."""
        ...

    def holds_constant(self, value: PlannedValue) -> bool:
        """True for state that does not change, or only between runs."""
        ...

    def command(self, kernel: NativeKernel, arguments: Sequence[Argument]) -> None:
        """Append a call of a kernel."""
        ...

    def scratch(self, shape: Sequence[Size], dtype: DType) -> NumpyOperand:
        """Allocate scratch for a step."""
        ...

    def prepared(
        self, kernel: NativeKernel, inputs: Sequence[NumpyOperand], sizes: Sequence[Size],
        shape: Sequence[Size], dtype: DType,
    ) -> NumpyOperand:  # fmt: skip
        """The output of a kernel over constant arrays."""
        ...

    def begin_blocks(self, count: Size) -> None:
        """Repeat the commands that follow."""
        ...

    def end_blocks(self) -> None:
        """End what `begin_blocks` began."""
        ...

    def extent(self) -> Hashable:
        """How much there is of all but what is recorded."""
        ...


@dataclass(frozen=True)
class OfSize:
    """An argument that is a size, in contrast to the number of an array."""

    size: Size


@dataclass(frozen=True)
class Wanted:
    """The operand for a value is asked for."""

    value: int


@dataclass(frozen=True)
class Called:
    """A command: a kernel, and its arguments."""

    kernel: NativeKernel
    arguments: tuple[int | OfSize, ...]


@dataclass(frozen=True)
class Scratch:
    """Scratch is allocated."""

    shape: tuple[Size, ...]
    dtype: DType


@dataclass(frozen=True)
class Prepared:
    """A kernel computes an array of constant ones."""

    kernel: NativeKernel
    inputs: tuple[int, ...]
    sizes: tuple[Size, ...]
    shape: tuple[Size, ...]
    dtype: DType


@dataclass(frozen=True)
class BlocksBegun:
    """The commands that follow are repeated."""

    count: Size


@dataclass(frozen=True)
class BlocksEnded:
    """No more commands are repeated."""


Event: TypeAlias = Wanted | Called | Scratch | Prepared | BlocksBegun | BlocksEnded
"""What writing a step does to the writer; arrays are the values of the step, then those made."""


@dataclass
class RecordedStep:
    """What writing a step does, by numbers of values. `is_complete` is false if it does more."""

    values: dict[PlannedValue, int]
    events: list[Event] = field(default_factory=list[Event])
    is_complete: bool = True
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
    _made: int = 0

    def operand(self, value: PlannedValue, operand: NumpyOperand) -> None:
        """The operand for a value was asked for."""
        number = self.values.get(value)
        if number is None:
            self.is_complete = False
        elif operand.name not in self._numbers:
            self._numbers[operand.name] = number
            self.events.append(Wanted(number))

    def scratch(self, operand: NumpyOperand) -> None:
        """Scratch was allocated."""
        self.events.append(Scratch(operand.shape, operand.type.dtype))
        self._is_made(operand)

    def prepared(
        self, operand: NumpyOperand, kernel: NativeKernel, inputs: Sequence[NumpyOperand],
        sizes: Sequence[Size],
    ) -> None:  # fmt: skip
        """An array was computed of constant ones."""
        numbers, type = tuple(map(self._number, inputs)), operand.type
        self.events.append(Prepared(kernel, numbers, tuple(sizes), type.shape, type.dtype))
        self._is_made(operand)

    def _is_made(self, operand: NumpyOperand) -> None:
        self._numbers[operand.name] = len(self.values) + self._made
        self._made += 1

    def command(self, kernel: NativeKernel, arguments: Sequence[Argument]) -> None:
        """A command was written."""
        listed = [
            self._number(argument) if isinstance(argument, NumpyOperand) else OfSize(argument)
            for argument in arguments
        ]
        self.events.append(Called(kernel, tuple(listed)))

    def blocks_begun(self, count: Size) -> None:
        """Commands are repeated from here."""
        self.events.append(BlocksBegun(count))

    def blocks_ended(self) -> None:
        """Commands are no longer repeated."""
        self.events.append(BlocksEnded())

    def _number(self, operand: NumpyOperand) -> int:
        number = self._numbers.get(operand.name)
        if number is None:
            self.is_complete = False
            return 0
        return number

    def repeat(self, writer: CommandWriter, values: Sequence[PlannedValue]) -> None:
        """Do the same with other values."""
        operands: dict[int, NumpyOperand] = {}
        made = len(values)
        for event in self.events:
            match event:
                case Wanted(number):
                    operands[number] = writer.operand(values[number])
                case Called(kernel, arguments):
                    listed = [a.size if isinstance(a, OfSize) else operands[a] for a in arguments]
                    writer.command(kernel, listed)
                case Scratch(shape, dtype):
                    operands[made] = writer.scratch(shape, dtype)
                    made += 1
                case Prepared(kernel, numbers, sizes, shape, dtype):
                    inputs = [operands[number] for number in numbers]
                    operands[made] = writer.prepared(kernel, inputs, sizes, shape, dtype)
                    made += 1
                case BlocksBegun(count):
                    writer.begin_blocks(count)
                case BlocksEnded():
                    writer.end_blocks()


class Stored(Protocol):
    """Recorded steps of earlier modules."""

    def find(self, form: Hashable) -> list[Event] | None:
        """The events of a step; None if there are none."""
        ...

    def add(self, form: Hashable, events: Sequence[Event]) -> None:
        """Store the events of a step."""
        ...


class RepeatedSteps:
    """Writes the steps of a module; those that equal an earlier one by its commands.

    Steps of earlier modules are `stored`, if it is not None.
    """

    def __init__(self, writer: CommandWriter, stored: Stored | None = None) -> None:
        self._writer, self._stored = writer, stored
        self._known: dict[Hashable, RecordedStep] = {}
        self._tries: dict[Hashable, int] = {}

    def write(self, step: Step, emit: Callable[[], None]) -> None:
        """Write a step as `emit` does."""
        described = _Description(self._writer).step(step)
        if described is None:
            return emit()
        form, values = described
        known = self._known.get(form)
        if known is not None:
            return known.repeat(self._writer, values)
        tries = self._tries.get(form, 0)
        if tries == TRIES:
            return emit()
        self._tries[form] = tries + 1
        recording = RecordedStep({value: number for number, value in enumerate(values)})
        stored = self._stored if self._is_own(step) else None
        described = self._writer.context(), form
        events = None if stored is None or tries else stored.find(described)
        if events is not None:
            recording.events = events
            self._known[form] = recording
            return recording.repeat(self._writer, values)
        before = self._writer.extent()
        self._writer.recording = recording
        try:
            emit()
        finally:
            self._writer.recording = None
        if recording.is_complete and self._writer.extent() == before:
            self._known[form] = recording
            if stored is not None:
                stored.add(described, recording.events)
        return None

    def _is_own(self, step: Step) -> bool:
        """True if the ops are of this package: others may change without its sources."""
        return all(type(op.defn).__module__.startswith("compiler.") for op in step.ops)


class _Description:
    """Describes a step by the numbers of its values and of their memory."""

    def __init__(self, writer: CommandWriter) -> None:
        self._writer = writer
        self._values: dict[PlannedValue, int] = {}
        self._rows: list[Hashable] = []
        self._homes: dict[tuple[StorageKind, str | int], tuple[int, Size]] = {}

    def step(self, step: Step) -> tuple[Hashable, list[PlannedValue]] | None:
        """What the code of a step depends on, and its values by number; None if on more."""
        if not all(self._is_plain(op) for op in step.ops):
            return None
        ops = tuple(map(self._op, step.ops))
        return (ops, tuple(self._rows)), list(self._values)

    def _is_plain(self, op: PlannedOp) -> bool:
        is_plain = not (op.body or op.given or op.kept) and has_plain_attributes(op.defn)
        return is_plain and all(
            value.type.dtype.is_float
            and value.place is not StorageKind.LOCAL
            and not value.type.is_open
            and self._writer.bound_dims.issuperset(value.type.names)
            for value in op.values
        )

    def _op(self, op: PlannedOp) -> Hashable:
        slots = tuple(
            (slot, tuple(map(self._value, values)))
            for side in (op.inputs, op.outputs)
            for slot, values in side.items()
        )
        return type(op.defn), repr(op.defn.attributes), op.target, op.part, len(op.inputs), slots

    def _value(self, value: PlannedValue) -> int:
        if value not in self._values:
            self._values[value] = len(self._values)
            self._rows.append(self._row(value))
        return self._values[value]

    def _row(self, value: PlannedValue) -> Hashable:
        """A value's types and place: its memory by number, from where its first value there is."""
        region, home = value.region, (value.place, value.home)
        number, first = self._homes.setdefault(home, (len(self._homes), region.offset))
        where = value.place, number, region.offset - first, region.row, region.pitch
        types = value.type, self._writer.placed_type(value)
        return *types, *where, value.on_device, self._writer.holds_constant(value)
