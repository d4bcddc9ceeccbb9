"""LLVM IR as text: types, typed values, and a builder of functions.

A `Function` appends instructions to its current block and returns their results as `Value`s:

    f = Function("scale", [("x", POINTER), ("n", I64)])
    x, n = f.parameters
    lanes = F32.vector(16)

    def body(i, carried):
        p = f.address(x, i, 4)
        f.store(f.mul(f.load(lanes, p), f.constant(lanes, 2.0)), p)
        return []

    f.loop(0, n, 16, body)
    print(f.text())

Text rather than objects, since a parser in C++ is faster than building IR in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from compiler.codegen.native.ir_places import InsertionPoint, flattened, with_ends
from compiler.codegen.native.ir_values import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    VOID,
    Type,
    Value,
    constant,
    lane_numbers,
    zero,
)

__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "Function",
    "I1",
    "I16",
    "I32",
    "I64",
    "I8",
    "Index",
    "LoopBody",
    "POINTER",
    "InsertionPoint",
    "Type",
    "VOID",
    "Value",
    "constant",
    "lane_numbers",
    "module_text",
    "zero",
]


Index: TypeAlias = "Value | int"
"""An i64 value, or a number known at compile time."""

LoopBody: TypeAlias = Callable[[Value, list[Value]], Sequence[Value]]
"""Emits one iteration from the index and the carried values; returns their next values."""


class Function:
    """A function under construction; instructions go to the end of the current block."""

    def __init__(
        self, name: str, parameters: Sequence[tuple[str, Type]], result: Type = VOID,
        internal: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.parameters = [Value(f"%{parameter}", type) for parameter, type in parameters]
        self.result = result
        self.declarations: dict[str, str] = {}
        self.callees: dict[Hashable, Function | None] = {}
        """Functions of its own that it calls, by what they compute; None for what is inlined."""
        self._linkage = "internal " if internal else ""
        self._lines: list[str | InsertionPoint] = ["entry:"]
        self._block = "entry"
        self._count = 0

    def text(self) -> str:
        """The definition; a function without result returns at its end."""
        head = f"{self.result} @{self.name}({', '.join(map(str, self.parameters))})"
        end = ["  ret void"] if self.result == VOID else []
        marked: list[InsertionPoint] = []
        lines = flattened(self._lines, marked)
        ends = {place.start: place.end for place in marked if place.end != place.start}
        if ends:
            lines = [with_ends(line, ends) if " = phi " in line else line for line in lines]
        return "\n".join([f"define {self._linkage}{head} nounwind {{", *lines, *end, "}"])

    def own_functions(self) -> list[Function]:
        """This function and those of its own that it calls."""
        return [self, *filter(None, self.callees.values())]

    @property
    def instructions(self) -> int:
        """The lines so far, without the label of the first block."""
        return len(self._lines) - 1

    # ---- places for later instructions ----

    def mark(self) -> InsertionPoint:
        """A place at the end of the current block where `at` may add instructions later."""
        place = InsertionPoint(self._block, self._block)
        self._lines.append(place)
        return place

    @contextmanager
    def at(self, place: InsertionPoint) -> Generator[None]:
        """Append instructions, and blocks that come together again, at a place that was marked."""
        saved = self._lines, self._block
        self._lines, self._block = place.lines, place.end
        yield
        place.end = self._block
        self._lines, self._block = saved

    # ---- instructions ----

    def value(self, type: Type, instruction: str) -> Value:
        """Append an instruction; returns its result."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {instruction}")
        return Value(name, type)

    def effect(self, instruction: str) -> None:
        """Append an instruction without result."""
        self._lines.append(f"  {instruction}")

    def comment(self, text: str) -> None:
        """Append a comment line."""
        self._lines.append(f"  ; {text}")

    def call(self, name: str, result: Type, *arguments: Value, flags: str = "") -> Value:
        """Call a function by name, which is declared in the module."""
        self._declare(name, result, arguments)
        text = f"call {flags}{' ' * bool(flags)}{result} @{name}({', '.join(map(str, arguments))})"
        if result == VOID:
            self.effect(text)
            return Value("", VOID)
        return self.value(result, text)

    def intrinsic(self, name: str, *arguments: Value, result: Type | None = None) -> Value:
        """Call `llvm.NAME.SUFFIX`, overloaded on the type of the first argument."""
        first = arguments[0].type
        return self.call(f"llvm.{name}.{first.suffix}", result or first, *arguments)

    def _declare(self, name: str, result: Type, arguments: Sequence[Value]) -> None:
        if name not in self.declarations:
            types = ", ".join(str(argument.type) for argument in arguments)
            self.declarations[name] = f"declare {result} @{name}({types})"

    # ---- constants and conversions ----

    def constant(self, type: Type, number: float) -> Value:
        """A constant; see `constant`."""
        return constant(type, number)

    def index(self, number: Index) -> Value:
        """An i64 value."""
        return constant(I64, number) if isinstance(number, int) else number

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A vector with the scalar in each lane; the scalar itself for 0 lanes."""
        if not lanes:
            return scalar
        type = scalar.type.vector(lanes)
        if not scalar.name.startswith("%"):
            return Value(f"splat ({scalar})", type)
        one = self.value(type, f"insertelement {type} poison, {scalar}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.value(type, f"shufflevector {one}, {type} poison, {zeros}")

    def convert(self, operation: str, value: Value, element: Type) -> Value:
        """Convert with `sitofp`, `fptosi`, `zext`, `trunc`, `bitcast`, …; lanes are kept."""
        type = value.type.of(element)
        return self.value(type, f"{operation} {value} to {type}")

    def extract(self, vector: Value, lane: Index) -> Value:
        """One lane of a vector."""
        return self.value(vector.type.scalar, f"extractelement {vector}, {self.index(lane)}")

    def insert(self, vector: Value, scalar: Value, lane: Index) -> Value:
        """A vector with one lane replaced."""
        text = f"insertelement {vector}, {scalar}, {self.index(lane)}"
        return self.value(vector.type, text)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Select lanes of two vectors, numbered through both."""
        type = a.type.vector(len(lanes))
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.value(type, f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{mask}>")

    # ---- arithmetic ----

    def binary(self, operation: str, a: Value, b: Value) -> Value:
        """Append a binary instruction by its LLVM name, such as `xor` or `fdiv`."""
        return self.value(a.type, f"{operation} {a}, {b.name}")

    def add(self, a: Value, b: Value) -> Value:
        """The sum a + b."""
        return self.binary("fadd" if a.type.is_float else "add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        """The difference a - b."""
        return self.binary("fsub" if a.type.is_float else "sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """The product a * b."""
        return self.binary("fmul" if a.type.is_float else "mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        """The quotient a / b; integers are signed and truncated."""
        return self.binary("fdiv" if a.type.is_float else "sdiv", a, b)

    def neg(self, a: Value) -> Value:
        """-a."""
        return self.value(a.type, f"fneg {a}") if a.type.is_float else self.sub(zero(a.type), a)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Compute a * b + c with one rounding."""
        return self.intrinsic("fma", a, b, c)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """Compare with an LLVM predicate: `olt`, `une` for floats, `slt`, `ult`, `eq` otherwise."""
        operation = "fcmp" if a.type.is_float else "icmp"
        return self.value(a.type.of(I1), f"{operation} {predicate} {a}, {b.name}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` in lanes where the condition holds, else `b`."""
        return self.value(a.type, f"select {condition}, {a}, {b}")

    def reduce(self, operation: str, vector: Value) -> Value:
        """Reduce the lanes: `fadd` (in any order), `fmax`, `fmin`, `add`, `smax`, `or`, …"""
        type = vector.type.scalar
        name = f"llvm.vector.reduce.{operation}.{vector.type.suffix}"
        if operation in ("fadd", "fmul"):
            start = constant(type, -0.0 if operation == "fadd" else 1.0)
            return self.call(name, type, start, vector, flags="reassoc")
        return self.call(name, type, vector)

    # ---- memory ----

    def address(self, pointer: Value, index: Index, size: int = 1) -> Value:
        """The address `index` elements of `size` bytes behind a pointer."""
        if isinstance(index, int):
            if index == 0:
                return pointer
            return self.value(POINTER, f"getelementptr i8, {pointer}, i64 {index * size}")
        element = "i8" if size == 1 else f"[{size} x i8]"
        return self.value(POINTER, f"getelementptr {element}, {pointer}, {index}")

    def load(self, type: Type, pointer: Value, align: int = 0) -> Value:
        """Load a scalar or contiguous lanes; aligned to one element by default."""
        return self.value(type, f"load {type}, {pointer}, align {align or type.nbytes}")

    def store(self, value: Value, pointer: Value, align: int = 0) -> None:
        """Store a scalar or contiguous lanes; aligned to one element by default."""
        self.effect(f"store {value}, {pointer}, align {align or value.type.nbytes}")

    def masked_load(self, type: Type, pointer: Value, mask: Value, other: Value) -> Value:
        """Load contiguous lanes where the mask holds; the others are those of `other`."""
        align = constant(I32, type.nbytes)
        return self.call(f"llvm.masked.load.{type.suffix}.p0", type, pointer, align, mask, other)

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store contiguous lanes where the mask holds.

        One lane that is known now is stored as a scalar: LLVM 22 stores 32 bits for one of 8 or 16
        that was truncated, and overwrites the elements behind it.
        """
        lanes = mask.name.strip("<>").split(", ")
        if lanes.count("i1 true") == 1:
            lane = lanes.index("i1 true")
            scalar = self.extract(value, lane)
            self.store(scalar, self.address(pointer, lane, scalar.type.nbytes))
            return
        align, name = constant(I32, value.type.nbytes), f"llvm.masked.store.{value.type.suffix}.p0"
        self.call(name, VOID, value, pointer, align, mask)

    def addresses(self, pointer: Value, index: Value, size: int) -> Value:
        """The addresses of a vector of indices behind a pointer, of elements of `size` bytes."""
        type, element = POINTER.vector(index.type.lanes), "i8" if size == 1 else f"[{size} x i8]"
        return self.value(type, f"getelementptr {element}, {pointer}, {index}")

    def gather(self, type: Type, pointers: Value, mask: Value, other: Value) -> Value:
        """Load from an address for each lane where the mask holds; the others are of `other`."""
        name = f"llvm.masked.gather.{type.suffix}.v{type.lanes}p0"
        return self.call(name, type, pointers, constant(I32, type.nbytes), mask, other)

    def scatter(self, value: Value, pointers: Value, mask: Value) -> None:
        """Store to an address for each lane where the mask holds, in the order of lanes."""
        name = f"llvm.masked.scatter.{value.type.suffix}.v{value.type.lanes}p0"
        self.call(name, VOID, value, pointers, constant(I32, value.type.nbytes), mask)

    def prefetch(self, pointer: Value, level: int) -> None:
        """Prefetch a cache line for reading; level 3 is the first cache, 2 the second."""
        level_ = constant(I32, level)
        self.call("llvm.prefetch.p0", VOID, pointer, constant(I32, 0), level_, constant(I32, 1))

    # ---- control flow ----

    def loop(
        self, start: Index, stop: Index, step: Index, body: LoopBody, carried: Sequence[Value] = ()
    ) -> list[Value]:
        """Emit `for i in range(start, stop, step)`, which must have an iteration.

        `carried` are values before the first iteration; returns those after the last.
        """
        self._count += 1
        head, before = f"loop{self._count}", self._block
        self.effect(f"br label %{head}")
        self._begin(head)
        place = len(self._lines)
        self._count += 1
        index = Value(f"%i{self._count}", I64)
        current = [Value(f"{index.name}_{n}", value.type) for n, value in enumerate(carried)]
        following = list(body(index, current))
        next_index = self.value(I64, f"add nuw nsw {index}, {self.index(step).name}")
        again = self.compare("ult", next_index, self.index(stop))
        phis = [
            (index, self.index(start), next_index),
            *zip(current, carried, following, strict=True),
        ]
        ends = (f"%{before}", f"%{self._block}")
        self._lines[place:place] = [
            f"  {phi.name} = phi {phi.type} [{first.name}, {ends[0]}], [{then.name}, {ends[1]}]"
            for phi, first, then in phis
        ]
        self.effect(f"br {again}, label %{head}, label %{head}_end")
        self._begin(f"{head}_end")
        return following

    def loop_if_any(
        self, start: Index, stop: Index, step: Index, body: LoopBody, carried: Sequence[Value] = ()
    ) -> list[Value]:
        """Emit a loop that may have no iteration."""
        if isinstance(start, int) and isinstance(stop, int):
            return self.loop(start, stop, step, body, carried) if start < stop else list(carried)
        some = self.compare("slt", self.index(start), self.index(stop))
        return self.choose(
            some, lambda: self.loop(start, stop, step, body, carried), lambda: list(carried)
        )

    def when(self, condition: Value, body: Callable[[], object]) -> None:
        """Emit a body that runs if the condition holds."""

        def then() -> list[Value]:
            body()
            return []

        self.choose(condition, then, list)

    def choose(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value]],
        other: Callable[[], Sequence[Value]],
    ) -> list[Value]:
        """Emit one of two bodies; returns the values of the one that ran."""
        self._count += 1
        name = f"if{self._count}"
        self.effect(f"br {condition}, label %{name}_then, label %{name}_else")
        results: list[tuple[list[Value], str]] = []
        for label, body in ((f"{name}_then", then), (f"{name}_else", other)):
            self._begin(label)
            results.append((list(body()), self._block))
            self.effect(f"br label %{name}_end")
        self._begin(f"{name}_end")
        (yes, from_yes), (no, from_no) = results
        return [
            self.value(a.type, f"phi {a.type} [{a.name}, %{from_yes}], [{b.name}, %{from_no}]")
            for a, b in zip(yes, no, strict=True)
        ]

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label


def module_text(functions: Sequence[Function]) -> str:
    """The text of a module: its functions, and declarations of what they call."""
    functions = [each for function in functions for each in function.own_functions()]
    defined = {function.name for function in functions}
    declared: dict[str, str] = {}
    for function in functions:
        declared |= function.declarations
    lines = [line for name, line in sorted(declared.items()) if name not in defined]
    return "\n\n".join([*(function.text() for function in functions), "\n".join(lines)]) + "\n"
