"""Arithmetic on indices, computed in Python where both sides are numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from compiler.codegen.native.llvm_ir import I1, I32, I64, Function, Index, Value, lane_numbers
from compiler.ir.dims import Dim, Size
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Indices:
    """Sums, products and quotients of indices; `sizes` are the values of open sizes."""

    function: Function
    sizes: Mapping[Dim, Value]

    def of(self, size: Size) -> Index:
        """A size as an index."""
        return self.sizes[size] if isinstance(size, Dim) else size

    def add(self, a: Index, b: Index) -> Index:
        """The sum."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._binary("add", a, b)

    def sub(self, a: Index, b: Index) -> Index:
        """The difference."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self._binary("sub", a, b)

    def mul(self, a: Index, b: Index) -> Index:
        """The product."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self._binary("mul", a, b)

    def product(self, factors: Iterable[Index]) -> Index:
        """The product of several; 1 for none."""
        total: Index = 1
        for factor in factors:
            total = self.mul(total, factor)
        return total

    def divide(self, a: Index, b: Index) -> Index:
        """The quotient of numbers that are not negative, rounded down."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        return a if b == 1 else self._binary("udiv", a, b)

    def divide_up(self, a: Index, b: int) -> Index:
        """The quotient of numbers that are not negative, rounded up."""
        return self.divide(self.add(a, b - 1), b)

    def least(self, a: Index, b: Index) -> Index:
        """The smaller of two numbers that are not negative."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.function.intrinsic("umin", self.function.index(a), self.function.index(b))

    def digits(self, number: Index, counts: Iterable[Index]) -> list[Index]:
        """Split a number into digits, the most significant first, by the count of each place."""
        digits: list[Index] = []
        places = list(counts)
        for place in range(len(places) - 1, -1, -1):
            if places[place] == 1:
                digits.append(0)
            elif all(size == 1 for size in places[:place]):
                digits.append(number)
            else:
                rest = self.divide(number, places[place])
                digits.append(self.sub(number, self.mul(rest, places[place])))
                number = rest
        return digits[::-1]

    def move(self, pointer: Value, index: Index, stride: Index, nbytes: int) -> Value:
        """The address `index` steps of `stride` elements behind a pointer."""
        if stride == 0:
            return pointer
        if isinstance(stride, int) and (isinstance(index, int) or stride > 0):
            return self.function.address(pointer, index, stride * nbytes)
        return self.function.address(pointer, self.mul(index, stride), nbytes)

    def repeat(
        self, start: Index, stop: Index, body: Callable[[Index, list[Value]], Sequence[Value]],
        carried: Sequence[Value] = (),
    ) -> list[Value]:  # fmt: skip
        """Emit `for i in range(start, stop)`: no loop around a single step."""
        if isinstance(start, int) and isinstance(stop, int) and stop - start == 1:
            return list(body(start, list(carried)))
        return self.function.loop_if_any(start, stop, 1, body, carried)

    def _binary(self, operation: str, a: Index, b: Index) -> Value:
        left, right = self.function.index(a), self.function.index(b)
        return Value(self.function.binary(operation, left, right).name, I64)


def lane_mask(function: Function, lanes: int, count: Index) -> Value:
    """The mask of the first `count` lanes."""
    if isinstance(count, int):
        bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
        return Value(f"<{bits}>", I1.vector(lanes))
    limit = function.splat(function.convert("trunc", count, I32), lanes)
    return function.compare("ult", lane_numbers(I32.vector(lanes)), limit)


def named(function: Function) -> Function:
    """The function with a digest of its text in its name, so that equal names mean equal text."""
    text = "".join(each.text() for each in function.own_functions())
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    function.name = f"{function.name}_{digest}"
    return function
