"""Integer arithmetic and bit operations on Python integers: models by opcode and type."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.tools.ptx.floats import Model


@dataclass(frozen=True)
class Whole:
    """An integer type; bit types (`b32`) count as unsigned."""

    name: str

    @property
    def bits(self) -> int:
        return int(self.name[1:])

    @property
    def signed(self) -> bool:
        return self.name[0] == "s"

    @property
    def least(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def most(self) -> int:
        return self.least + (1 << self.bits) - 1

    def value(self, bits: int) -> int:
        """The number that bits (of at least this width) stand for."""
        bits &= (1 << self.bits) - 1
        return bits - (1 << self.bits) if bits > self.most else bits

    def wrapped(self, number: int) -> int:
        return number & ((1 << self.bits) - 1)

    def clamped(self, number: int) -> int:
        return self.wrapped(min(max(number, self.least), self.most))


Numbers = Callable[..., int | None]


def on_values(kind: Whole, numbers: Numbers, out: Whole | None = None) -> Model:
    """A model on numbers as one on bits: the result wraps around."""

    def run(*operands: int) -> int | None:
        result = numbers(*map(kind.value, operands))
        return None if result is None else (out or kind).wrapped(result)

    return run


def quotient(a: int, b: int) -> int | None:
    """`a / b` cut towards zero; division by zero is open."""
    if not b:
        return None
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int | None:
    """What `a / b` leaves, with the sign of a."""
    whole = quotient(a, b)
    return None if whole is None else a - whole * b


ARITHMETIC: dict[str, Numbers] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "div": quotient,
    "rem": remainder,
    "min": min,
    "max": max,
    "abs": abs,
    "neg": lambda a: -a,
}

BITWISE: dict[str, Numbers] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "cnot": lambda a: int(not a),
    "mov": lambda a: a,
}


def high(kind: Whole) -> Model:
    """The upper half of a product."""
    return on_values(kind, lambda a, b: (a * b) >> kind.bits)


def high_sum(kind: Whole) -> Model:
    """The upper half of a product, plus c."""
    return on_values(kind, lambda a, b, c: ((a * b) >> kind.bits) + c)


def wide(kind: Whole) -> Model:
    """A product, twice as wide."""
    out = Whole(f"{kind.name[0]}{2 * kind.bits}")
    return on_values(kind, lambda a, b: a * b, out)


def wide_sum(kind: Whole) -> Model:
    """A product plus c, both twice as wide."""
    out = Whole(f"{kind.name[0]}{2 * kind.bits}")
    return lambda a, b, c: out.wrapped(kind.value(a) * kind.value(b) + c)


def shift_left(kind: Whole) -> Model:
    """Amounts above the width count as the width."""
    return lambda a, n: kind.wrapped(a << min(n, kind.bits))


def shift_right(kind: Whole) -> Model:
    """Amounts above the width count as the width; signed types fill with the sign."""
    return lambda a, n: kind.wrapped(kind.value(a) >> min(n, kind.bits))


def funnel(left: bool, clamp: bool) -> Model:
    """shf: 32 bits of the pair b:a, shifted by c clamped to 32 or wrapped at 32."""

    def run(a: int, b: int, c: int) -> int:
        count, pair = min(c, 32) if clamp else c & 31, (b << 32) | a
        return ((pair << count) >> 32 if left else pair >> count) & 0xFFFFFFFF

    return run


def extract_field(kind: Whole) -> Model:
    """bfe: `c & 255` bits from position `b & 255`, extended by the field's sign."""

    def run(a: int, b: int, c: int) -> int:
        start, count = b & 255, c & 255
        last = min(start + count - 1, kind.bits - 1)
        fill = (a >> last) & 1 if kind.signed and count else 0
        result = 0
        for place in range(kind.bits):
            inside = place < count and start + place < kind.bits
            result |= ((a >> (start + place)) & 1 if inside else fill) << place
        return result

    return run


def insert_field(kind: Whole) -> Model:
    """bfi: the low `d & 255` bits of a, put into b at position `c & 255`."""

    def run(a: int, b: int, c: int, d: int) -> int:
        start, result = c & 255, b
        for place in range(min(d & 255, kind.bits)):
            if start + place < kind.bits:
                mask = 1 << (start + place)
                result = (result & ~mask) | (mask if (a >> place) & 1 else 0)
        return result

    return run


def count_leading(kind: Whole) -> Model:
    return lambda a: kind.bits - a.bit_length()


def find_leading(kind: Whole) -> Model:
    """bfind: the place of the top bit that differs from the sign; all ones where there is none."""

    def run(a: int) -> int:
        size = ~kind.value(a) if kind.value(a) < 0 else kind.value(a)
        return size.bit_length() - 1 if size else 0xFFFFFFFF

    return run


def reverse(kind: Whole) -> Model:
    return lambda a: int(f"{a:0{kind.bits}b}"[::-1], 2)


def table(immediate: int) -> Model:
    """lop3: bit `4 a + 2 b + c` of the immediate, for every bit of the operands."""

    def run(a: int, b: int, c: int) -> int:
        places = (((a >> n) & 1, (b >> n) & 1, (c >> n) & 1) for n in range(32))
        return sum(
            ((immediate >> (4 * x + 2 * y + z)) & 1) << n for n, (x, y, z) in enumerate(places)
        )

    return run


def permute(a: int, b: int, c: int) -> int:
    """prmt: four bytes of b:a chosen by nibbles of c; bit 3 of one copies the byte's sign."""
    result = 0
    for place in range(4):
        choice = (c >> (4 * place)) & 15
        byte = (((b << 32) | a) >> (8 * (choice & 7))) & 255
        result |= ((255 if byte & 128 else 0) if choice & 8 else byte) << (8 * place)
    return result
