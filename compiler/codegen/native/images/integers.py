"""Index arithmetic in IR, folded where both operands are known at compile time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from compiler.codegen.native.llvm_ir import I64, Function, Index, Value
from compiler.ir.dims import Dim, Size
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Integers:
    """Operations on i64 values and Python ints; two ints give an int.

    `sizes` are the values of open sizes.
    """

    function: Function
    sizes: Mapping[Dim, Value] = field(default_factory=dict[Dim, Value])

    def of(self, size: Size) -> Index:
        """A size as an index."""
        return self.sizes[size] if isinstance(size, Dim) else size

    def add(self, a: Index, b: Index) -> Index:
        """The sum a + b."""
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._operate("add nsw", lambda x, y: x + y, a, b)

    def sub(self, a: Index, b: Index) -> Index:
        """The difference a - b."""
        return a if b == 0 else self._operate("sub nsw", lambda x, y: x - y, a, b)

    def mul(self, a: Index, *factors: Index) -> Index:
        """The product of all factors."""
        for b in factors:
            if isinstance(a, int) and not isinstance(b, int):
                a, b = b, a
            if b == 0:
                return 0
            a = a if b == 1 else self._operate("mul nsw", lambda x, y: x * y, a, b)
        return a

    def sum(self, terms: Iterable[Index]) -> Index:
        """The sum of all terms."""
        total: Index = 0
        for term in terms:
            total = self.add(total, term)
        return total

    def div(self, a: Index, b: Index) -> Index:
        """The quotient a // b of numbers that are not negative."""
        return a if b == 1 else self._operate("udiv", lambda x, y: x // y, a, b)

    def mod(self, a: Index, b: Index) -> Index:
        """The remainder a % b of numbers that are not negative."""
        return 0 if b == 1 else self._operate("urem", lambda x, y: x % y, a, b)

    def divmod(self, a: Index, b: Index) -> tuple[Index, Index]:
        """Quotient and remainder of numbers that are not negative."""
        quotient = self.div(a, b)
        return quotient, self.sub(a, self.mul(quotient, b)) if b != 1 else 0

    def ceil_div(self, a: Index, b: int) -> Index:
        """The quotient of numbers that are not negative, rounded up."""
        return self.div(self.add(a, b - 1), b)

    def min(self, a: Index, b: Index) -> Index:
        """The smaller of two signed numbers."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.function.intrinsic("smin", self.value(a), self.value(b))

    def max(self, a: Index, b: Index) -> Index:
        """The larger of two signed numbers."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.function.intrinsic("smax", self.value(a), self.value(b))

    def value(self, number: Index) -> Value:
        """The number as an i64 operand."""
        return Value(str(number), I64) if isinstance(number, int) else number

    def _operate(
        self, operation: str, fold: Callable[[int, int], int], a: Index, b: Index
    ) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return self.function.binary(operation, self.value(a), self.value(b))
