"""Forms of instructions, by the names that PTX text has for them, with types and models."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.tools.ptx import arithmetic, conversions, integers
from tests.tools.ptx.approximate import Tolerance, approximation
from tests.tools.ptx.floats import FORMATS, Format, Model
from tests.tools.ptx.integers import Whole


@dataclass(frozen=True)
class Form:
    """An instruction from registers to a register.

    `operands` and `result` are kinds: a type of PTX, `pred`, or `count` for a number of bits to
    shift by. `text` is what follows the destination, with {0}, {1} for the operands.
    """

    name: str
    result: str
    operands: tuple[str, ...]
    model: Model
    tolerance: Tolerance | None = None
    text: str = ""

    @property
    def format(self) -> Format | None:
        """The format of the result, if it is one float."""
        return FORMATS.get(self.result)


def form(name: str) -> Form:
    """The form of that name; KeyError where no model is written for it."""
    root, *modifiers = name.split(".")
    for rule in (_approximate, _special, _packed, _float, _integer):
        result = rule(name, root, modifiers)
        if result is not None:
            return result
    raise KeyError(name)


def _approximate(name: str, root: str, modifiers: list[str]) -> Form | None:
    if not {"approx", "full"} & set(modifiers):
        return None
    model, tolerance = approximation(name)
    kind = modifiers[-1]
    return Form(name, kind, (kind,) * (2 if root == "div" else 1), model, tolerance)


def _special(name: str, root: str, modifiers: list[str]) -> Form | None:
    kind = modifiers[-1]
    if root == "setp":
        return Form(name, "pred", (kind, kind), conversions.compare(name))
    if root == "selp":
        return Form(name, kind, (kind, kind, "pred"), lambda a, b, p: a if p else b)
    if root == "cvt":
        return _conversion(name, modifiers)
    return None


def _conversion(name: str, modifiers: list[str]) -> Form:
    out, inputs = modifiers[-2:]
    if out.endswith("x2"):
        single = conversions.convert(name.replace("x2", ""))
        return Form(name, out, (inputs, inputs), lambda a, b: _joined(single(b), single(a)))
    model = conversions.convert(name)
    if out in ("s8", "u8"):
        return Form(
            name,
            "s16",
            (inputs,),
            lambda a: Whole("s16").wrapped(Whole(out).value(_known(model(a)))),
        )
    return Form(name, out, (inputs,), model)


def _known(bits: int | None) -> int:
    assert bits is not None
    return bits


def _joined(low: int | None, high: int | None) -> int | None:
    return None if low is None or high is None else low | (high << 16)


Maker = Callable[[Format, list[str]], Model]


def _rounding(modifiers: list[str]) -> str:
    return next((m for m in modifiers if m in ("rn", "rz", "rm", "rp")), "rn")


def _rounded(make: Callable[[Format, str, bool], Model]) -> Maker:
    return lambda fmt, modifiers: make(fmt, _rounding(modifiers), "ftz" in modifiers)


FLOAT: dict[str, tuple[int, Maker]] = {
    "add": (2, _rounded(arithmetic.add)),
    "sub": (2, _rounded(arithmetic.sub)),
    "mul": (2, _rounded(arithmetic.mul)),
    "fma": (3, _rounded(arithmetic.fma)),
    "div": (2, _rounded(arithmetic.div)),
    "rcp": (1, _rounded(arithmetic.rcp)),
    "sqrt": (1, _rounded(arithmetic.sqrt)),
    "min": (2, lambda fmt, given: arithmetic.extreme(fmt, False, "NaN" in given)),
    "max": (2, lambda fmt, given: arithmetic.extreme(fmt, True, "NaN" in given)),
    "abs": (1, lambda fmt, given: arithmetic.absolute(fmt)),
    "neg": (1, lambda fmt, given: arithmetic.negated(fmt)),
    "copysign": (2, lambda fmt, given: arithmetic.copysign(fmt)),
    "mov": (1, lambda fmt, given: lambda a: a),
}
"""Operands of float instructions, and what makes their models."""

_KNOWN = {"rn", "rz", "rm", "rp", "ftz", "sat", "NaN"}


def _float_model(root: str, kind: str, modifiers: list[str]) -> tuple[int, Model] | None:
    if kind not in FORMATS or root not in FLOAT or set(modifiers) - _KNOWN:
        return None
    count, make = FLOAT[root]
    fmt = FORMATS[kind]
    model = make(fmt, modifiers)
    return count, arithmetic.finished(fmt, model, "ftz" in modifiers, "sat" in modifiers)


def _float(name: str, root: str, modifiers: list[str]) -> Form | None:
    kind = modifiers[-1]
    result = _float_model(root, kind, modifiers[:-1])
    return None if result is None else Form(name, kind, (kind,) * result[0], result[1])


def _packed(name: str, root: str, modifiers: list[str]) -> Form | None:
    kind = modifiers[-1]
    if not kind.endswith("x2"):
        return None
    half = kind.removesuffix("x2")
    result = _float_model(root, half, modifiers[:-1])
    if half in ("s16", "u16"):
        whole = form(f"{root}.{half}")
        result = len(whole.operands), whole.model
    if result is None:
        return None
    count, single = result

    def run(*operands: int) -> int | None:
        low = single(*(operand & 0xFFFF for operand in operands))
        return _joined(low, single(*(operand >> 16 for operand in operands)))

    return Form(name, kind, (kind,) * count, run)


SHAPED: dict[str, Callable[[Whole, str], tuple[str, tuple[str, ...], Model]]] = {
    "mul.hi": lambda whole, kind: (kind, (kind, kind), integers.high(whole)),
    "mad.hi": lambda whole, kind: (kind, (kind,) * 3, integers.high_sum(whole)),
    "mul.wide": lambda whole, kind: (_twice(kind), (kind, kind), integers.wide(whole)),
    "mad.wide": lambda whole, kind: (
        _twice(kind),
        (kind, kind, _twice(kind)),
        integers.wide_sum(whole),
    ),
    "shl": lambda whole, kind: (kind, (kind, "count"), integers.shift_left(whole)),
    "shr": lambda whole, kind: (kind, (kind, "count"), integers.shift_right(whole)),
    "bfe": lambda whole, kind: (kind, (kind, "count", "count"), integers.extract_field(whole)),
    "bfi": lambda whole, kind: (kind, (kind, kind, "count", "count"), integers.insert_field(whole)),
    "popc": lambda whole, kind: ("b32", (kind,), int.bit_count),
    "clz": lambda whole, kind: ("b32", (kind,), integers.count_leading(whole)),
    "bfind": lambda whole, kind: ("b32", (kind,), integers.find_leading(whole)),
    "brev": lambda whole, kind: (kind, (kind,), integers.reverse(whole)),
    "prmt": lambda whole, kind: (kind, (kind,) * 3, integers.permute),
}
"""Integer instructions by what stands before the type: kinds of result and operands, and model."""
for _left in (True, False):
    for _clamp in (True, False):
        SHAPED[f"shf.{'l' if _left else 'r'}.{'clamp' if _clamp else 'wrap'}"] = (
            lambda whole, kind, left=_left, clamp=_clamp: (
                kind, (kind, kind, "count"), integers.funnel(left, clamp)
            )
        )  # fmt: skip


def _twice(kind: str) -> str:
    return f"{kind[0]}{2 * int(kind[1:])}"


def _integer(name: str, root: str, modifiers: list[str]) -> Form | None:
    before, _, kind = name.rpartition(".")
    if kind == "pred":
        model = integers.on_values(Whole("b1"), integers.BITWISE[before])
        return Form(name, kind, (kind,) * _operands(before), model)
    whole = Whole(kind)
    if root == "lop3":
        raise KeyError(name)
    if before in SHAPED:
        return Form(name, *SHAPED[before](whole, kind))
    numbers = (integers.ARITHMETIC | integers.BITWISE)[before]
    return Form(name, kind, (kind,) * _operands(before), integers.on_values(whole, numbers))


def _operands(before: str) -> int:
    return {"not": 1, "cnot": 1, "mov": 1, "neg": 1, "abs": 1, "mad.lo": 3}.get(before, 2)
