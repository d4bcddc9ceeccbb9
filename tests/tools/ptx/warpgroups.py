"""wgmma by the PTX ISA: where elements of matrices lie, and what a product is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.tools.ptx.floats import FORMATS
from tests.tools.ptx.integers import Whole

SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}
MODES = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a row within which a swizzle exchanges chunks of 16, by its number."""


@dataclass(frozen=True)
class Stored:
    """A factor in shared memory of `rows` by 32 bytes along K (of B, rows are columns).

    `start` and the distances `lead` and `stride` are bytes.
    """

    rows: int
    kind: str
    mode: int
    across: bool
    start: int = 0

    @property
    def depth(self) -> int:
        return 32 // SIZES[self.kind]

    @property
    def lead(self) -> int:
        """Between chunks along K if nothing is exchanged; between rows of a swizzle if `across`."""
        if self.across:
            return 2048 if self.mode else 256
        return self.rows * 16

    @property
    def stride(self) -> int:
        """Between groups of eight: rows of the matrix, or columns if `across`."""
        if self.across:
            return 8 * MODES[self.mode] if self.mode else 512
        return 8 * MODES[self.mode]

    @property
    def descriptor(self) -> int:
        """The descriptor without the start."""
        return self.lead >> 4 << 16 | self.stride >> 4 << 32 | self.mode << 62

    def place(self, row: int, k: int) -> int:
        """The byte of an element, from an address that is a multiple of 1024."""
        size, width = SIZES[self.kind], MODES[self.mode]
        if self.across:
            chunk, rest = divmod(row * size, width)
            far, deep = (self.lead, self.stride) if self.mode else (self.stride, self.lead)
            at = chunk * far + rest + k % 8 * width + k // 8 * deep
        elif self.mode:
            at = row % 8 * width + row // 8 * self.stride + k * size
        else:
            chunk, rest = divmod(k * size, 16)
            at = row % 8 * 16 + row // 8 * self.stride + chunk * self.lead + rest
        return self._exchanged(self.start + at)

    def _exchanged(self, at: int) -> int:
        for bit in range(int(math.log2(MODES[self.mode] // 16))):
            at ^= (at >> (7 + bit) & 1) << (4 + bit)
        return at


def held_sum(thread: int, columns: int) -> list[tuple[int, int]]:
    """Row and column of each element of the sum that a thread holds."""
    warp, lane = divmod(thread, 32)
    return [
        (
            16 * warp + lane // 4 + 8 * (index // 2 % 2),
            8 * (index // 4) + 2 * (lane % 4) + index % 2,
        )
        for index in range(columns // 2)
    ]


def held_factor(thread: int, kind: str) -> list[tuple[int, int]]:
    """Row and place along K of each element of A that a thread holds, registers in order."""
    warp, lane = divmod(thread, 32)
    packed = 4 // SIZES[kind]
    return [
        (
            16 * warp + lane // 4 + 8 * (register % 2),
            packed * (lane % 4 + 4 * (register // 2)) + index,
        )
        for register in range(4)
        for index in range(packed)
    ]


def number(kind: str, bits: int) -> Fraction | float:
    """The value of an element; a float for what is infinite or NaN."""
    if kind not in FORMATS:
        return Fraction(Whole(kind).value(bits))
    fmt = FORMATS[kind]
    if fmt.is_nan(bits):
        return math.nan
    if fmt.is_infinite(bits):
        return -math.inf if fmt.is_negative(bits) else math.inf
    return fmt.value(bits)


def total(terms: Sequence[tuple[Fraction | float, Fraction | float]]) -> Fraction | float:
    """A sum of products, exact; infinite or NaN by the rules for floats."""
    if all(isinstance(each, Fraction) for pair in terms for each in pair):
        return sum((Fraction(a) * Fraction(b) for a, b in terms), Fraction(0))
    return sum(_product(a, b) for a, b in terms)


def _product(a: Fraction | float, b: Fraction | float) -> float:
    return float(a) * float(b)


def bits_of(value: Fraction | float, result: str, saturates: bool = False) -> int:
    """A sum as an element of the result: rounded, wrapped or clamped."""
    if result == "s32":
        whole = int(value)
        limits = (-(1 << 31), (1 << 31) - 1)
        return (max(limits[0], min(limits[1], whole)) if saturates else whole) & 0xFFFFFFFF
    fmt = FORMATS[result]
    if isinstance(value, Fraction):
        return fmt.rounded(value)
    if math.isnan(value):
        return fmt.nan
    return fmt.infinity | (fmt.sign if value < 0 else 0)
