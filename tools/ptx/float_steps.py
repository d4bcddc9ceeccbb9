"""Steps of float instructions: float32, float64, and halves alone or in pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tools.ptx import floats
from tools.ptx.arithmetic import compute, joined
from tools.ptx.errors import unsupported
from tools.ptx.exact import by_fractions
from tools.ptx.group import Value, array, choose
from tools.ptx.instructions import Instruction
from tools.ptx.values import DTYPES, Function, Step, called

SINGLE = ("f32", "f64")
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
MODES = ("rn", "rz", "rm", "rp")
_OPERANDS = {
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,
    "min": 2,
    "max": 2,
    "fma": 3,
    "mad": 3,
    "copysign": 2,
}
_ALLOWED = {
    "add": (*MODES, "ftz", "sat"), "sub": (*MODES, "ftz", "sat"), "mul": (*MODES, "ftz", "sat"),
    "fma": (*MODES, "ftz", "sat"), "mad": (*MODES, "ftz", "sat"),
    "div": (*MODES, "approx", "full", "ftz"), "rcp": (*MODES, "approx", "ftz"),
    "sqrt": (*MODES, "approx", "ftz"), "rsqrt": ("approx", "ftz"), "min": ("ftz", "NaN"),
    "max": ("ftz", "NaN"), "abs": ("ftz",), "neg": ("ftz",), "ex2": ("approx", "ftz"),
    "lg2": ("approx", "ftz"), "sin": ("approx", "ftz"), "cos": ("approx", "ftz"),
    "tanh": ("approx",), "copysign": (),
}  # fmt: skip


def single(instruction: Instruction) -> Step:
    """An instruction of float32 or float64; approximate ones are computed exactly."""
    name, kind = instruction.opcode, DTYPES[instruction.type]
    for modifier in instruction.modifiers[:-1]:
        if modifier not in _ALLOWED[name]:
            raise unsupported(instruction, f"the modifier {modifier}")
    mode = next((modifier for modifier in instruction.modifiers if modifier in MODES), "rn")
    function = _function(name, kind, mode, instruction.has("NaN"))
    function = _flushing(function) if instruction.has("ftz") else function
    function = _clamping(function) if instruction.has("sat") else function
    return compute(instruction, function, *(kind,) * _OPERANDS.get(name, 1))


def _flushing(function: Function) -> Function:
    call = called(function)

    def run(*values: Value) -> Value:
        return floats.flushed(call(*map(floats.flushed, values)))

    return run


def _clamping(function: Function) -> Function:
    call = called(function)

    def run(*values: Value) -> Value:
        return floats.clamped(call(*values))

    return run


def _function(name: str, kind: str, mode: str, nan: bool) -> Function:
    if name in ("fma", "mad"):
        fma = floats.fma32 if kind == "f4" else floats.fma64
        return lambda a, b, c: fma(a, b, c, mode)
    if name in ("min", "max"):
        pick = floats.smallest if name == "min" else floats.largest
        return lambda a, b: pick(a, b, nan)
    if mode != "rn":
        return _directed(name, kind, mode)
    return _NEAREST[name] if name in _NEAREST else _elementary(name, kind)


_NEAREST: Mapping[str, Function] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "sqrt": np.sqrt,
    "rcp": lambda a: a.dtype.type(1) / a,
    "abs": np.abs,
    "neg": np.negative,
    "copysign": lambda sign, size: np.copysign(size, sign),
}
_EXACT: Mapping[str, Function] = {
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def _elementary(name: str, kind: str) -> Function:
    function = called(_EXACT[name])
    return lambda a: function(a.astype("f8")).astype(kind)


def _directed(name: str, kind: str, mode: str) -> Function:
    if kind == "f8":
        return _directed_double(name, mode)
    wide = called(_WIDE[name])

    def run(*values: Value) -> Value:
        exact = wide(*(value.astype("f8") for value in values))
        if mode == "rm" and name in ("add", "sub"):
            first, second = values
            exact = floats.sum_down(exact, first, second if name == "add" else -second)
        return floats.rounded(exact, "f4", mode)

    return run


_WIDE: Mapping[str, Function] = {
    "add": floats.odd_sum,
    "sub": lambda a, b: floats.odd_sum(a, -b),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
}


def _directed_double(name: str, mode: str) -> Function:
    if name == "rcp":
        return lambda a: by_fractions("div", mode, np.float64(1), a)
    if name == "sqrt":
        return lambda a: floats.directed(np.sqrt(a), np.sqrt(a.astype(np.longdouble)), mode)
    return lambda a, b: by_fractions(name, mode, a, b)


_HALF_ALLOWED = {
    "add": ("rn", "sat", "ftz"), "sub": ("rn", "sat", "ftz"), "mul": ("rn", "sat", "ftz"),
    "fma": ("rn", "sat", "ftz", "relu"), "min": ("NaN", "ftz"),
    "max": ("NaN", "ftz"), "abs": (), "neg": (),
    "ex2": ("approx", "ftz"), "tanh": ("approx",),
}  # fmt: skip


def half(instruction: Instruction) -> Step:
    """An instruction of float16 or bfloat16, alone or in pairs."""
    name, pair = instruction.opcode, instruction.type.endswith("x2")
    for modifier in instruction.modifiers[:-1]:
        if modifier not in _HALF_ALLOWED.get(name, ()) or (
            modifier == "ftz" and instruction.type[0] == "f"
        ):
            raise unsupported(instruction, f"the modifier {modifier}")
    one = called(_half(instruction, name))
    count = _OPERANDS.get(name, 1)
    if not pair:
        return compute(instruction, one, *("u2",) * count)

    def both(*values: Value) -> Value:
        low = one(*((value & np.uint32(0xFFFF)).astype("u2") for value in values))
        return joined(low, one(*((value >> np.uint32(16)).astype("u2") for value in values)))

    return compute(instruction, both, *("u4",) * count)


def _half(instruction: Instruction, name: str) -> Function:
    """A function from bits to bits."""
    brain = instruction.type[0] == "b"
    if name in ("abs", "neg"):
        return _sign_bit(name)
    wide = called(_half_function(name, instruction.has("NaN")))
    sat, relu = instruction.has("sat"), instruction.has("relu")

    def run(*values: Value) -> Value:
        result = wide(*(half_value(value, brain) for value in values))
        result = floats.clamped(result) if sat else result
        result = floats.positive(result) if relu else result
        return half_bits(result, brain)

    return run


def _sign_bit(name: str) -> Function:
    if name == "abs":
        return lambda bits: bits & np.uint16(0x7FFF)
    return lambda bits: bits ^ np.uint16(0x8000)


def _half_function(name: str, nan: bool) -> Function:
    if name == "fma":
        return floats.odd_fma
    if name in ("ex2", "tanh"):
        exact = called(_EXACT[name])
        return lambda a: exact(a.astype("f8"))
    return _function(name, "f4", "rn", nan)


def half_value(bits: Value, brain: bool) -> Value:
    """Bits of a half as float32."""
    return floats.from_bfloat(bits) if brain else bits.view("f2").astype("f4")


def half_bits(value: Value, brain: bool) -> Value:
    """A float32 or float64 as bits of a half, rounded once; NaN of float16 becomes 0x7FFF."""
    if brain:
        return floats.to_bfloat(value)
    return choose(np.isnan(value), np.uint16(0x7FFF), array(value.astype("f2")).view("u2"))
