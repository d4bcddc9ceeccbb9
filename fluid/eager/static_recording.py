"""Recording of an eager function as a static program.

Eager variables that the function uses, parameters above all, are declared in the program when an op
reads them, and their arrays are those of a scope. What depends on a value of a variable, such as a
branch, cannot be recorded; the error names the line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Unpack, cast

from compiler.errors import CompileError
from compiler.support.dataclass import dataclass
from fluid import unique_name
from fluid.eager.variables import ParamBase, VarBase
from fluid.framework import Program, Variable, recording_guard
from fluid.recording.annotations import Attributes, Slots, SlotValue
from fluid.recording.block import Block, Fill
from fluid.recording.op_records import is_ours, user_line
from fluid.recording.operator import Operator
from fluid.recording.variable import VariableFields
from runtime.tensors.scope import Scope

__all__ = ["StaticRecording", "record"]


@dataclass
class StaticRecording:
    """A function as a program: its feeds and outputs, and by name the eager variables it reads."""

    program: Program
    startup: Program
    feeds: list[Variable]
    outputs: list[Variable]
    result: Any
    variables: Mapping[str, VarBase]

    def scope(self) -> Scope:
        """Return a scope whose tensors are those of the eager variables."""
        scope = Scope()
        for name, var in self.variables.items():
            scope.var(name).get_tensor().adopt(var.array())
        return scope


class RecordedVariable(Variable):
    """A variable of a recorded program; a user's branch on it raises an error."""

    def __bool__(self) -> bool:
        frame = inspect.currentframe()
        caller = None if frame is None else frame.f_back
        if caller is not None and not is_ours(caller.f_code.co_filename):
            _refuse(self, "a branch or loop")
        return True

    def numpy(self) -> NoReturn:
        """Raise RuntimeError: there is no value."""
        _refuse(self, "numpy()")


def _refuse(var: Variable, what: str) -> NoReturn:
    raise RuntimeError(
        f"{user_line()}: {what} depends on the value of {var.name!r}, which a program that is "
        "recorded once does not have: use layers.cond, layers.while_loop or layers.where instead"
    )


class RecordingProgram(Program):
    """A program that declares the eager variables that its ops read."""

    follows_layers = True

    def __init__(self) -> None:
        self.eager: dict[str, VarBase] = {}
        self.names: dict[int, str] = {}
        super().__init__()

    def make_block(self, idx: int, parent_idx: int) -> Block:
        """Create a block of this program."""
        return RecordingBlock(self, idx, parent_idx)

    def declared(self, var: VarBase) -> Variable:
        """Return the program's variable for an eager one, which is declared at its first use."""
        block = self.global_block()
        name = self.names.get(id(var))
        if name is None:
            taken = block.has_var(var.name)
            name = unique_name.generate(f"{var.name}@again") if taken else var.name
            self.names[id(var)] = name
            self.eager[name] = var
            if isinstance(var, ParamBase):
                param = block.create_parameter(
                    name=name, shape=var.shape, dtype=var.dtype, trainable=var.trainable
                )
                param.stop_gradient = var.stop_gradient
            else:
                block.create_var(
                    name=name, shape=var.shape, dtype=var.dtype, persistable=True,
                    stop_gradient=True,
                )  # fmt: skip
        return block.var(name)


class RecordingBlock(Block):
    """A block of a `RecordingProgram`."""

    def create_var(
        self, initializer: Fill | None = None, **fields: Unpack[VariableFields]
    ) -> Variable:
        """Declare a variable, see `Block.create_var`."""
        var = super().create_var(initializer, **fields)
        if type(var) is Variable:
            var.__class__ = RecordedVariable
        return var

    def insert_op(
        self,
        index: int,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
    ) -> Operator:
        """Insert an op, see `Block.insert_op`; slots may have eager variables."""
        inputs, outputs = self._declared(inputs), self._declared(outputs)
        return super().insert_op(index, type, inputs, outputs, attrs)

    def _declared(self, slots: Slots | None) -> Slots | None:
        return slots and {slot: self._value(value) for slot, value in slots.items()}

    def _value(self, value: SlotValue) -> SlotValue:
        program = cast(RecordingProgram, self.program)
        if isinstance(value, list | tuple):
            items = cast(Sequence[Any], value)
            return [program.declared(v) if isinstance(v, VarBase) else v for v in items]
        return program.declared(value) if isinstance(value, VarBase) else value


def record(function: Callable[..., object], arguments: Sequence[object]) -> StaticRecording:
    """Record a call of a function; arrays and eager variables among its arguments are fed.

    The batch size, the first axis of the feeds, stays open unless the function fixes it. Raises
    RuntimeError for a branch on a value, and what recording an op raises.
    """
    try:
        return _recorded(function, arguments, open_batch=True)
    except (CompileError, TypeError):
        return _recorded(function, arguments, open_batch=False)


def _recorded(
    function: Callable[..., Any], arguments: Sequence[Any], *, open_batch: bool
) -> StaticRecording:
    program, startup = RecordingProgram(), Program()
    feeds: list[Variable] = []

    def fed(argument: Any) -> Any:
        if not hasattr(argument, "shape") or not hasattr(argument, "dtype"):
            return argument
        shape = list(argument.shape)
        name = f"feed_{len(feeds)}"
        batch = [-1, *shape[1:]] if open_batch and shape else shape
        var = program.global_block().create_var(
            name=name, shape=batch, dtype=argument.dtype, is_data=True, stop_gradient=True,
            need_check_feed=True,
        )  # fmt: skip
        feeds.append(var)
        return var

    with recording_guard(program, startup), unique_name.guard():
        result = function(*[fed(argument) for argument in arguments])
        outputs = [_output(program, item) for item in _variables(result)]
    return StaticRecording(program, startup, feeds, outputs, result, program.eager)


def _output(program: RecordingProgram, var: Variable) -> Variable:
    return program.declared(var) if isinstance(var, VarBase) else var


def _variables(result: object) -> list[Variable]:
    """Return the variables of a result, which may be nested."""
    if isinstance(result, Variable):
        return [result]
    items: list[Any] = [*result] if isinstance(result, list | tuple) else []
    return [var for item in items for var in _variables(item)]
