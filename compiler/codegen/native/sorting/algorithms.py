"""Stable sorts of keys in memory: merges of runs for a few, by digits (LSD radix) for many."""

from __future__ import annotations

from compiler.codegen.native.llvm_ir import (
    I1,
    I64,
    POINTER,
    Function,
    Value,
    constant,
    zero,
)
from compiler.codegen.native.sorting.keys import WORD, loaded, store
from compiler.support.thresholds import threshold

MIN_RADIX = threshold(
    "radix_sorted_keys", 256, "keys", "so many are sorted by digits, fewer by merges", small=24
)

BUCKETS = 1 << 8
"""The values of a digit, which is a byte."""

_LANES = 8


def sort_function(words: int) -> Function:
    """Return `void sort_keys(ptr keys, ptr room, i64 count)`, which sorts one key or more.

    `room` is memory for as many keys. The first word of two is compared; of a single word only the
    upper half, if equal keys are in the order of their lower halves.
    """
    parameters = [("keys", POINTER), ("room", POINTER), ("count", I64)]
    f = Function("sort_keys", parameters, internal=True)
    digits = [8 * byte for byte in (range(8) if words > 1 else range(4, 8))]
    counts = f.value(POINTER, f"alloca [{len(digits) * BUCKETS} x i64], align 64")

    def by_merges() -> list[Value]:
        return [_merge_sort(f, words)]

    def by_digits() -> list[Value]:
        return [_radix_sort(f, words, counts, digits)]

    few = f.compare("ult", f.parameters[2], constant(I64, MIN_RADIX.value))
    (passes,) = f.choose(few, by_merges, by_digits)
    odd = f.convert("trunc", passes, I1)
    f.when(odd, lambda: _copy(f, words))
    return f


def _copy(f: Function, words: int) -> None:
    """Copy the keys from the room, where an odd number of passes leaves them."""
    keys, room, count = f.parameters

    def move(place: Value, _: list[Value]) -> list[Value]:
        f.store(f.load(I64, f.address(room, place, WORD)), f.address(keys, place, WORD))
        return []

    f.loop(0, f.mul(count, constant(I64, words)), 1, move)


# ---- merges ------------------------------------------------------------------------------------


def _merge_sort(f: Function, words: int) -> Value:
    """Merge runs of 1, 2, 4, … keys from one array into the other; returns the number of passes."""
    keys, room, count = f.parameters
    last = f.sub(count, constant(I64, 1))
    leading = f.call("llvm.ctlz.i64", I64, last, constant(I1, 0))
    passes = f.sub(constant(I64, 64), leading)

    def merge_pass(_: Value, carried: list[Value]) -> list[Value]:
        source, target, width = carried
        step = f.add(width, width)

        def runs(low: Value, _: list[Value]) -> list[Value]:
            _merge(f, words, (source, target), (low, width, count))
            return []

        f.loop(0, count, step, runs)
        return [target, source, step]

    f.loop_if_any(0, passes, 1, merge_pass, [keys, room, constant(I64, 1)])
    return passes


def _merge(
    f: Function, words: int, arrays: tuple[Value, Value], span: tuple[Value, Value, Value]
) -> None:
    """Merge two adjacent runs."""
    source, target = arrays
    low, width, count = span
    middle = _least(f, f.add(low, width), count)
    high = _least(f, f.add(middle, width), count)
    last = f.sub(count, constant(I64, 1))

    def take(place: Value, carried: list[Value]) -> list[Value]:
        left, right = carried
        a = loaded(f, source, _least(f, left, last), words)
        b = loaded(f, source, _least(f, right, last), words)
        ordered = f.binary("and", f.compare("ult", left, middle), f.compare("ule", a[0], b[0]))
        first = f.binary("or", f.compare("uge", right, high), ordered)
        key = [f.select(first, one, other) for one, other in zip(a, b, strict=True)]
        store(f, key, target, place)
        moved = f.convert("zext", first, I64)
        return [f.add(left, moved), f.add(right, f.sub(constant(I64, 1), moved))]

    f.loop(low, high, 1, take, [low, middle])


def _least(f: Function, a: Value, b: Value) -> Value:
    return f.select(f.compare("ult", a, b), a, b)


# ---- digits ------------------------------------------------------------------------------------


def _radix_sort(f: Function, words: int, counts: Value, digits: list[int]) -> Value:
    """Scatter keys by each digit in turn, the lowest first; returns the number of passes.

    A digit that is the same in all keys needs no pass.
    """
    keys, room, count = f.parameters
    _count_digits(f, words, counts, digits)
    source, target, passes = keys, room, constant(I64, 0)
    for number, shift in enumerate(digits):
        table = f.address(counts, number * BUCKETS, WORD)
        digit = _digit(f, loaded(f, source, 0, words)[0], shift)
        same = f.compare("eq", f.load(I64, f.address(table, digit, WORD)), count)

        def skip(source: Value = source, target: Value = target) -> list[Value]:
            return [source, target, constant(I64, 0)]

        def scatter(
            source: Value = source, target: Value = target, table: Value = table,
            shift: int = shift,
        ) -> list[Value]:  # fmt: skip
            _add_up(f, table)
            _scatter(f, words, (source, target, table), shift)
            return [target, source, constant(I64, 1)]

        source, target, done = f.choose(same, skip, scatter)
        passes = f.add(passes, done)
    return passes


def _digit(f: Function, word: Value, shift: int) -> Value:
    shifted = f.binary("lshr", word, constant(I64, shift)) if shift else word
    return f.binary("and", shifted, constant(I64, BUCKETS - 1))


def _count_digits(f: Function, words: int, counts: Value, digits: list[int]) -> None:
    """Count the keys that have each value of each digit."""
    vector = I64.vector(_LANES)

    def clear(place: Value, _: list[Value]) -> list[Value]:
        f.store(zero(vector), f.address(counts, place, WORD))
        return []

    def count_key(place: Value, _: list[Value]) -> list[Value]:
        word = loaded(f, f.parameters[0], place, words)[0]
        for number, shift in enumerate(digits):
            _take(f, f.address(counts, number * BUCKETS, WORD), _digit(f, word, shift))
        return []

    f.loop(0, len(digits) * BUCKETS, _LANES, clear)
    f.loop(0, f.parameters[2], 1, count_key)


def _take(f: Function, table: Value, digit: Value) -> Value:
    """Increment the number of a digit in a table; returns the one before."""
    address = f.address(table, digit, WORD)
    number = f.load(I64, address)
    f.store(f.add(number, constant(I64, 1)), address)
    return number


def _add_up(f: Function, table: Value) -> None:
    """Turn the count of each digit into the sum of those before it."""

    def entry(place: Value, carried: list[Value]) -> list[Value]:
        address = f.address(table, place, WORD)
        number = f.load(I64, address)
        f.store(carried[0], address)
        return [f.add(carried[0], number)]

    f.loop(0, BUCKETS, 1, entry, [constant(I64, 0)])


def _scatter(f: Function, words: int, arrays: tuple[Value, Value, Value], shift: int) -> None:
    """Move the keys to where their digits belong, in the same order for equal digits."""
    source, target, table = arrays

    def move(place: Value, _: list[Value]) -> list[Value]:
        key = loaded(f, source, place, words)
        store(f, key, target, _take(f, table, _digit(f, key[0], shift)))
        return []

    f.loop(0, f.parameters[2], 1, move)
