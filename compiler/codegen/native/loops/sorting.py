"""Sorting: the order of a row's values, by merging runs of keys with their iterations.

A key has a value's bits, so ordered that they compare as integers, above the number of its
iteration: equal values keep their order, and the lower half of a sorted key is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.codegen.kernel.analysis import reduced_loop
from compiler.codegen.native.llvm_ir import (
    F32,
    I32,
    I64,
    POINTER,
    Function,
    Value,
    constant,
    zero,
)
from compiler.codegen.native.loops.body import Body, NotLowered
from compiler.codegen.native.loops.indices import IndexEmitter
from compiler.codegen.native.loops.loops import Carried, LoopEmitter
from compiler.codegen.native.loops.types import convert
from compiler.codegen.trace import Expr
from compiler.ir.types import DType
from compiler.support.thresholds import threshold

MAX_SORTED = threshold(
    "sorted_row", 1 << 14, "values", "a longer row is not sorted in the stack's memory", small=6
)

KEY_BYTES = 8


class SortedRows:
    """Sorts rows of values, and loads their order.

    `value` emits an expression in the current iteration of a loop. `helpers` are the functions
    that sorts call.
    """

    def __init__(self, body: Body, indices: IndexEmitter, value: Callable[[Expr], Value]) -> None:
        self.helpers: list[Function] = []
        self._body = body
        self._indices = indices
        self._scopes = indices.scopes
        self._value = value
        self._f = indices.f
        self._keys: dict[Expr, Value] = {}

    def sort_all(self, parts: Sequence[Expr], loops: LoopEmitter) -> None:
        """Sort the rows whose order some expressions are, in the current loop."""
        for part in (each for each in parts if each.fn == "order"):
            self._sort(part, loops)

    def _sort(self, part: Expr, loops: LoopEmitter) -> None:
        loop, value = reduced_loop(part), part.args[0]
        size = self._body.kernel.loops[loop]
        if not isinstance(size, int) or size > MAX_SORTED.value or loop in self._body.ends:
            raise NotLowered(f"it sorts rows of {size} values")
        if not isinstance(value, Expr) or value.dtype.itemsize > 4:
            raise NotLowered("it sorts values of 64 bits")
        f = self._f
        first, second = (self._room(part, number, size) for number in range(2))

        def iteration(carried: Carried) -> Carried:
            place = self._indices.index(self._body.forms.of(part.args[1]))
            key = _key(f, self._value(value), value.dtype, bool(part.extra), place)
            f.store(key, f.address(first, place, KEY_BYTES))
            return carried

        loops.over(self._body.loop_axes(loop), iteration, [])
        self.helpers = [merge_sort()]
        passes = constant(I64, (size - 1).bit_length())
        count = constant(I64, size)
        self._keys[part] = f.call("sort_keys", POINTER, first, second, count, passes)

    def _room(self, part: Expr, number: int, size: int) -> Value:
        """Memory for the keys of a row."""
        text = f"alloca [{size} x i64], align 64"
        return self._scopes.at_depth(
            0, ("room", part, number), lambda: self._f.value(POINTER, text)
        )

    def place(self, part: Expr) -> Value:
        """The iteration at the current place of a sorted row."""
        form, lanes = self._body.forms.of(part.args[1]), self._scopes.lanes
        keys = self._f.address(self._keys[part], self._indices.index(form), KEY_BYTES)
        if not self._scopes.is_vector(self._body.axes(part)):
            return self._iteration(self._f.load(I64, keys))
        type = I64.vector(lanes.count)
        if lanes.axis is None or form.coefficient(lanes.axis) != 1:
            raise NotLowered("its sorted rows are read apart")
        if lanes.mask is None:
            return self._iteration(self._f.load(type, keys))
        return self._iteration(self._f.masked_load(type, keys, lanes.mask, zero(type)))

    def _iteration(self, key: Value) -> Value:
        return self._f.binary("and", key, constant(key.type, 0xFFFFFFFF))


def _key(f: Function, value: Value, dtype: DType, descending: bool, place: Value) -> Value:
    """A value and its iteration as an integer that orders both."""
    if value.type.is_float:
        # NaN becomes the one that is larger than infinity; -0 becomes 0
        zeroed = f.add(value, constant(value.type, 0.0))
        nan = constant(F32, float("nan"))
        bits = f.convert("bitcast", f.select(f.compare("uno", value, value), nan, zeroed), I32)
        sign = f.binary("ashr", bits, constant(I32, 31))
        number = f.binary("xor", bits, f.binary("and", sign, constant(I32, 0x7FFFFFFF)))
    else:
        number = convert(f, value, dtype, I32)
    if descending:
        number = f.binary("xor", number, constant(I32, -1))
    wide = f.binary("shl", f.convert("sext", number, I64), constant(I64, 32))
    return f.binary("or", wide, place)


def merge_sort() -> Function:
    """`ptr sort_keys(ptr keys, ptr room, i64 count, i64 passes)`: returns the sorted ones.

    Passes merge runs of 1, 2, 4, … keys from one array into the other.
    """
    parameters = [("keys", POINTER), ("room", POINTER), ("count", I64), ("passes", I64)]
    f = Function("sort_keys", parameters, POINTER, internal=True)
    keys, room, count, passes = f.parameters

    def merge_pass(_: Value, held: list[Value]) -> list[Value]:
        source, target, width = held
        step = f.add(width, width)

        def runs(low: Value, carried: list[Value]) -> list[Value]:
            _merge(f, (source, target), (low, width, count))
            return carried

        f.loop(0, count, step, runs)
        return [target, source, step]

    results = f.loop_if_any(0, passes, 1, merge_pass, [keys, room, constant(I64, 1)])
    f.effect(f"ret {results[0]}")
    return f


def _merge(f: Function, arrays: tuple[Value, Value], span: tuple[Value, Value, Value]) -> None:
    """Merge two adjacent runs."""
    source, target = arrays
    low, width, count = span
    middle = _least(f, f.add(low, width), count)
    high = _least(f, f.add(middle, width), count)
    last = f.sub(count, constant(I64, 1))

    def take(place: Value, held: list[Value]) -> list[Value]:
        left, right = held
        a = f.load(I64, f.address(source, _least(f, left, last), KEY_BYTES))
        b = f.load(I64, f.address(source, _least(f, right, last), KEY_BYTES))
        ordered = f.binary("and", f.compare("slt", left, middle), f.compare("sle", a, b))
        first = f.binary("or", f.compare("sge", right, high), ordered)
        f.store(f.select(first, a, b), f.address(target, place, KEY_BYTES))
        moved = f.convert("zext", first, I64)
        rest = f.sub(constant(I64, 1), moved)
        return [f.add(left, moved), f.add(right, rest)]

    f.loop(low, high, 1, take, [low, middle])


def _least(f: Function, a: Value, b: Value) -> Value:
    return f.select(f.compare("slt", a, b), a, b)
