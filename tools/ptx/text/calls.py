"""Calls: the instructions of a function take the place of each call of it.

Parameters of calls are variables of the caller's local memory, which the function uses under its
own names. A function that calls itself is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tools.ptx.errors import unsupported
from tools.ptx.instructions import (
    Address,
    Instruction,
    Kernel,
    Not,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)

MOST_INSTRUCTIONS = 1 << 20
"""Instructions of a kernel with those of the functions that it calls."""


@dataclass(frozen=True)
class Function:
    """A function: the names of its parameters and results, and its body as that of a kernel."""

    name: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    body: Kernel


def without_calls(
    body: Kernel, functions: Mapping[str, Function], within: tuple[str, ...] = ()
) -> Kernel:
    """Return a kernel in which each call is replaced by what the function does.

    Raises UnsupportedInstruction for a call of a function that is only declared, or calls itself.
    """
    if not any(instruction.opcode == "call" for instruction in body.instructions):
        return body
    caller = _Caller(body)
    for index, instruction in enumerate(body.instructions):
        caller.place_labels(index)
        if instruction.opcode != "call":
            caller.instructions.append(instruction)
            continue
        function = _called(instruction, functions, within)
        inner = without_calls(function.body, functions, (*within, function.name))
        caller.call(instruction, function, inner)
    caller.place_labels(len(body.instructions))
    return caller.kernel()


def _called(
    call: Instruction, functions: Mapping[str, Function], within: tuple[str, ...]
) -> Function:
    name = next((operand.name for operand in call.operands if isinstance(operand, Symbol)), "")
    if {*call.modifiers} - {"uni"} or not name:
        raise unsupported(call, "only calls of functions by name are")
    if name not in functions:
        raise unsupported(call, f"{name} has no body")
    if name in within:
        raise unsupported(call, f"{name} calls itself")
    return functions[name]


class _Caller:
    """Collects the instructions of a body, those of functions in the place of calls."""

    def __init__(self, body: Kernel) -> None:
        self._body = body
        self._starts: dict[int, list[str]] = {}
        for name, index in body.labels.items():
            self._starts.setdefault(index, []).append(name)
        self._slots: dict[str, int] = {}
        self._calls = 0
        self._registers = list(body.registers)
        self._variables = dict(body.variables)
        self._labels: dict[str, int] = {}
        self.instructions: list[Instruction] = []

    def place_labels(self, index: int) -> None:
        """Let the labels of an instruction of the body stand here."""
        for name in self._starts.get(index, ()):
            self._labels[name] = len(self.instructions)

    def kernel(self) -> Kernel:
        """The body without calls."""
        return replace(
            self._body,
            registers=tuple(self._registers),
            variables=self._variables,
            instructions=tuple(self.instructions),
            labels=self._labels,
        )

    def call(self, call: Instruction, function: Function, inner: Kernel) -> None:
        """Append what a function does, its `inner` body, with the parameters of a call."""
        if len(self.instructions) + len(inner.instructions) > MOST_INSTRUCTIONS:
            raise unsupported(call, f"more than {MOST_INSTRUCTIONS} instructions")
        self._calls += 1
        own = {name: f"{name}@{function.name}" for name in inner.variables}
        labels = {name: f"{name}@{self._calls}" for name in inner.labels}
        names = {**own, **labels, **_parameters(call, function)}
        after = Symbol(f"@{self._calls}")
        if call.guard is not None:
            self.instructions.append(_jump(call, after, _inverted(call.guard)))
        start, slots = len(self.instructions), self._room(function, inner, own)
        for instruction in inner.instructions:
            renamed = _renamed(instruction, names, slots)
            self.instructions.append(_jump(renamed, after) if renamed.opcode == "ret" else renamed)
        self._labels |= {labels[name]: start + index for name, index in inner.labels.items()}
        self._labels[after.name] = len(self.instructions)

    def _room(self, function: Function, inner: Kernel, own: Mapping[str, str]) -> int:
        """Give a function registers and variables at its first call: the number of the first."""
        if function.name not in self._slots:
            first = len(self._registers)
            self._slots[function.name] = first
            self._registers += [replace(e, slot=first + e.slot) for e in inner.registers]
            for name, variable in inner.variables.items():
                self._variables[own[name]] = _named(variable, own[name])
        return self._slots[function.name]


def _named(variable: Variable, name: str) -> Variable:
    return replace(variable, name=name)


def _parameters(call: Instruction, function: Function) -> dict[str, str]:
    """The caller's variable for each parameter and result of a function."""
    lists = [operand.parts for operand in call.operands if isinstance(operand, Vector)]
    arguments = [part for parts in lists for part in parts]
    wanted = (*function.results, *function.parameters)
    names = [argument.name for argument in arguments if isinstance(argument, Symbol)]
    if len(names) != len(wanted) or len(arguments) != len(wanted):
        raise unsupported(call, f"{len(wanted)} parameters and results expected")
    return dict(zip(wanted, names, strict=True))


def _jump(place: Instruction, to: Symbol, guard: Register | Not | None = None) -> Instruction:
    return replace(place, opcode="bra", modifiers=(), operands=(to,), guard=guard or place.guard)


def _inverted(guard: Register | Not) -> Register | Not:
    return guard.register if isinstance(guard, Not) else Not(guard)


def in_local_memory(instruction: Instruction, names: Collection[str]) -> Instruction:
    """An access of a parameter of a call, one of these names, as one of local memory."""
    places = [operand.base for operand in instruction.operands if isinstance(operand, Address)]
    if not any(isinstance(place, Symbol) and place.name in names for place in places):
        return instruction
    modifiers = tuple(
        "local" if modifier == "param" else modifier for modifier in instruction.modifiers
    )
    return replace(instruction, modifiers=modifiers)


def _renamed(instruction: Instruction, names: Mapping[str, str], slots: int) -> Instruction:
    """An instruction of a function, with the names and the registers that its caller has for it."""
    renames = _Renames(names, slots)
    operands = tuple(renames.operand(operand) for operand in instruction.operands)
    guard = instruction.guard and renames.guard(instruction.guard)
    return in_local_memory(replace(instruction, operands=operands, guard=guard), {*names.values()})


@dataclass(frozen=True)
class _Renames:
    names: Mapping[str, str]
    slots: int

    def register(self, register: Register) -> Register:
        return replace(register, slot=register.slot + self.slots)

    def guard(self, guard: Register | Not) -> Register | Not:
        if isinstance(guard, Not):
            return Not(self.register(guard.register))
        return self.register(guard)

    def symbol(self, symbol: Symbol) -> Symbol:
        return Symbol(self.names.get(symbol.name, symbol.name))

    def operand(self, operand: Operand | None) -> Operand | None:
        match operand:
            case Register() | Not():
                return self.guard(operand)
            case Symbol():
                return self.symbol(operand)
            case Address(Register() as base, offset):
                return Address(self.register(base), offset)
            case Address(Symbol() as base, offset):
                return Address(self.symbol(base), offset)
            case Vector(parts):
                return Vector(tuple(self.operand(part) for part in parts))
            case Pair(first, second):
                return Pair(self.operand(first), self.operand(second))
            case _:
                return operand
