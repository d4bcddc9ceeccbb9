"""cvt between types, and comparisons of setp."""

from collections.abc import Callable
from fractions import Fraction

from tests.tools.ptx.arithmetic import saturated
from tests.tools.ptx.floats import F32, FORMATS, TF32, Format, Model, rounded_whole
from tests.tools.ptx.integers import Whole


def convert(name: str) -> Model:
    """The model of `cvt...`; KeyError if it has a modifier that is not known."""
    _, *modifiers, out, inputs = name.split(".")
    known = {"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "relu"}
    if unknown := set(modifiers) - known:
        raise KeyError(f"{name}: {unknown}")
    mode = next((m for m in modifiers if m.startswith("r") and m != "relu"), "rn")
    ftz, sat = "ftz" in modifiers, "sat" in modifiers
    if inputs in FORMATS and out in FORMATS:
        model = float_to_float(FORMATS[inputs], FORMATS[out], mode, ftz, sat)
        return relu(FORMATS[out], model) if "relu" in modifiers else model
    if inputs in FORMATS:
        return float_to_whole(FORMATS[inputs], Whole(out), mode, ftz)
    if out in FORMATS:
        return whole_to_float(Whole(inputs), FORMATS[out], mode, sat)
    return whole_to_whole(Whole(inputs), Whole(out), sat)


def float_to_float(given: Format, out: Format, mode: str, ftz: bool, sat: bool) -> Model:
    """A float in another format; `.rmi` and the like round to whole numbers in the same one."""

    def run(bits: int) -> int | None:
        bits = given.flushed(bits) if ftz and given is F32 else bits
        if given.is_nan(bits):
            result = out.nan
        elif given.is_infinite(bits):
            result = out.infinity | (out.sign if given.is_negative(bits) else 0)
        else:
            zero = out.sign if given.is_negative(bits) else 0
            number = given.value(bits)
            if mode.endswith("i"):
                whole = rounded_whole(abs(number), mode[:-1], number < 0)
                number, rounding = Fraction(-whole if number < 0 else whole), "rn"
            else:
                rounding = mode
            result = out.rounded(number, rounding, zero)
        result = out.flushed(result) if ftz and out is F32 else result
        result = saturated(out, result) if sat else result
        return result << 13 if out is TF32 else result

    return run


def relu(out: Format, model: Model) -> Model:
    """Negative results become +0; whether -0 is one of them is open."""

    def run(*operands: int) -> int | None:
        bits = model(*operands)
        if bits is None or bits == out.sign:
            return None
        return 0 if out.is_negative(bits) and not out.is_nan(bits) else bits

    return run


def float_to_whole(given: Format, out: Whole, mode: str, ftz: bool) -> Model:
    """Rounded and clamped; NaN is 0, or the top bit alone where either type has 64 bits."""

    def run(bits: int) -> int | None:
        bits = given.flushed(bits) if ftz and given is F32 else bits
        if given.is_nan(bits):
            return 1 << (out.bits - 1) if given.bits == 64 or out.bits == 64 else 0
        if given.is_infinite(bits):
            return out.wrapped(out.least if given.is_negative(bits) else out.most)
        number = given.value(bits)
        whole = rounded_whole(abs(number), mode[:-1], number < 0)
        return out.clamped(-whole if number < 0 else whole)

    return run


def whole_to_float(given: Whole, out: Format, mode: str, sat: bool) -> Model:
    def run(bits: int) -> int:
        result = out.rounded(Fraction(given.value(bits)), mode)
        return saturated(out, result) if sat else result

    return run


def whole_to_whole(given: Whole, out: Whole, sat: bool) -> Model:
    """Cut or extended by the source's sign; clamped with `.sat`."""
    change = out.clamped if sat else out.wrapped
    return lambda bits: change(given.value(bits))


# ---- comparisons ------------------------------------------------------------------------------

ORDERED: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(name: str) -> Model:
    """The model of `setp.lt.f32` and the like, without a predicate to join: 1 or 0."""
    _, operator, *rest, kind = name.split(".")
    if set(rest) - {"ftz"}:
        raise KeyError(name)
    if kind in FORMATS:
        return compare_floats(FORMATS[kind], operator, "ftz" in rest)
    whole, test = Whole(kind), ORDERED[UNSIGNED.get(operator, operator)]
    return lambda a, b: int(test(Fraction(whole.value(a)), Fraction(whole.value(b))))


def compare_floats(fmt: Format, operator: str, ftz: bool) -> Model:
    """Ordered forms are false for NaN, those with a `u` after them true."""

    def order(bits: int) -> Fraction:
        if fmt.is_infinite(bits):
            far = Fraction(1 << 1100)
            return -far if fmt.is_negative(bits) else far
        return fmt.value(fmt.flushed(bits) if ftz else bits)

    def run(a: int, b: int) -> int:
        unordered = fmt.is_nan(a) or fmt.is_nan(b)
        if operator in ("num", "nan"):
            return int(unordered == (operator == "nan"))
        if unordered:
            return int(operator.endswith("u"))
        return int(ORDERED[operator[:2]](order(a), order(b)))

    return run
