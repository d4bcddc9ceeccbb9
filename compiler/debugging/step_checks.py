"""Comparison of native steps with the reference implementations of their ops, as they run.

A module that is compiled with `check` 2 copies the inputs of each native step before the step runs,
and then compares its outputs with what the reference computes from these copies in float64. Fused
ops are compared as a group: by what the group writes to memory.

Two correct results differ by rounding. A value is right within `ROUNDING` of its own magnitude, or
within `SLACK` times what the reference's results change if its inputs are rounded differently:
that is measured, by inputs changed in their last bit, so that long sums, cancellation and
comparisons of nearly equal numbers have the tolerance that their arithmetic needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from compiler.debugging.reference_steps import ReferenceStep, is_shape
from compiler.errors import WrongResult
from compiler.ir.types import Array, is_floating
from compiler.support.dataclass import dataclass

LOGGER = logging.getLogger("fluid.check")
"""Receives one line for each program that was checked."""

ROUNDING = {8: 1e-10, 4: 1e-5, 2: 4.0}
"""Relative error of a value, by the bytes of the least precise float of a step; of halves, in units
of its last place.
"""
SLACK = 32.0
"""How many times the changes by rounded inputs a value may differ."""
TRIALS = 3
"""How often the reference computes with inputs that are rounded differently."""
FAILURES = (ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of a reference implementation on arrays that it does not accept."""


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element of a step's outputs: `largest` is the largest difference of all."""

    variable: str
    index: tuple[int, ...]
    expected: Any
    got: Any
    largest: float
    wrong: int
    size: int


@dataclass
class StepChecks:
    """The comparisons of one loaded program.

    `steps` are the numbers of the steps compared, of those `made`; `compared` counts comparisons by
    ops (fused ops are joined by `+`). `largest` is the largest difference that was right, relative
    to the largest magnitude of its output, with its ops; `skipped` are reasons by op.
    """

    program: str
    compared: dict[str, int] = field(default_factory=dict[str, int])
    steps: set[int] = field(default_factory=set[int])
    largest: tuple[float, str] = (0.0, "")
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    log: Callable[[str], object] | None = None
    """Receives the summary of the first run; by default the logger `fluid.check`."""
    made: int = 0
    _is_told: bool = False

    def step(self, ops: Sequence[Any], kernels: Sequence[str] = ()) -> CheckedStep:
        """The checks of a step: its ops as `ReferenceStep` takes them, and its kernels' names."""
        self.made += 1
        return CheckedStep(self, self.made, ReferenceStep.of(ops), tuple(kernels))

    def finish(self, uncompared: Mapping[str, str]) -> None:
        """End a run; the first one writes the summary. `uncompared` are ops, with the reasons."""
        if self._is_told:
            return
        self._is_told = True
        self.skipped = {**uncompared, **self.skipped}
        (self.log or log_line)(self.summary)

    @property
    def summary(self) -> str:
        """One sentence: how many steps were compared, the largest difference, what was not."""
        error, op = self.largest
        text = f"checked {len(self.steps)} native steps of program {self.program!r}: all agree"
        if op:
            text += f", the largest difference is {error:.1e} of the largest magnitude ({op})"
        why: dict[str, list[str]] = {}
        for kind, reason in self.skipped.items():
            why.setdefault(reason, []).append(kind)
        listed = "; ".join(f"{', '.join(kinds)} ({reason})" for reason, kinds in why.items())
        return text + f"; not compared: {listed}" * bool(listed)

    def agrees(self, step: str, error: float) -> None:
        """Count a step whose outputs are right."""
        self.compared[step] = self.compared.get(step, 0) + 1
        self.largest = max(self.largest, (error, step))


def log_line(text: str) -> None:
    """Log a line at level INFO; on stderr if the program has not configured logging."""
    if not (LOGGER.handlers or logging.root.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
    LOGGER.info("%s", text)


Inputs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class CheckedStep:
    """The checks of one step: `before` it runs, and `after`."""

    checks: StepChecks
    number: int
    reference: ReferenceStep
    kernels: tuple[str, ...]

    def before(self, *inputs: Any) -> Inputs:
        """Copies of the arrays that the step reads, by label; a tuple is a shape without data."""
        copies = [array if is_shape(array) else np.array(array) for array in inputs]
        return dict(zip(self.reference.inputs, copies, strict=True))

    def after(self, inputs: Inputs, *outputs: Array) -> None:
        """Compare outputs with the reference; WrongResult names the first element that differs."""
        name = self.reference.name
        try:
            expected = self._expected(inputs)
        except FAILURES as error:
            self.checks.skipped.setdefault(name, f"the reference: {error}")
            return
        got = dict(zip(self.reference.outputs, outputs, strict=True))
        mismatch, error = self._compare(inputs, got, expected)
        if mismatch is not None:
            raise self._error(mismatch)
        self.checks.steps.add(self.number)
        self.checks.agrees(name, error)

    def _compare(
        self, inputs: Inputs, got: Inputs, expected: Inputs
    ) -> tuple[Mismatch | None, float]:
        """The first mismatch, if any, and the largest relative difference of an output."""
        rounding, others, largest = self._rounding(inputs, got), self._others(inputs), 0.0
        tried_inputs: list[Inputs] = []
        for name, array in got.items():
            wanted = np.reshape(expected[name], array.shape)
            wrong, away = differing(array, wanted, rounding)
            tried = chain(tried_inputs, map(partial(_appended, tried_inputs), others))
            results: list[Array] = []
            while wrong.any() and (other := next(tried, None)) is not None:
                computed: Array = np.asarray(other[name]).reshape(array.shape)
                results.append(computed)
                right = explained(array, wanted, results, rounding)
                away, wrong = np.where(right & wrong, 0.0, away), wrong & ~right
            if wrong.any():
                return _mismatch(name, wrong, array, wanted, away), np.inf
            largest = max(largest, _relative(away, wanted))
        return None, largest

    def _expected(self, inputs: Inputs, types: Inputs | None = None) -> Inputs:
        """The reference's results in float64; in the types of the inputs for ops that need them."""
        try:
            return self.reference.evaluate(inputs)
        except FAILURES:
            stored = inputs if types is None else _cast(inputs, types)
            return self.reference.evaluate(stored, in_float64=False)

    def _rounding(self, inputs: Inputs, got: Inputs) -> float:
        """The relative error that the least precise float type of the step allows."""
        arrays = [*inputs.values(), *got.values()]
        types = [array.dtype for array in arrays if not is_shape(array)]
        names = {*map(str, types), *self.reference.dtypes}
        if "bfloat16" in names:
            return ROUNDING[2] * 2.0**-8
        if "float16" in names:
            return ROUNDING[2] * 2.0**-11
        return ROUNDING[4] if "float32" in names else ROUNDING[8]

    def _others(self, inputs: Inputs) -> Iterator[Inputs]:
        """What the reference computes from changed inputs, and in the types of the arrays."""
        for seed in range(TRIALS):
            yield self._expected(_nudged(inputs, np.random.default_rng(seed)), inputs)
        yield self.reference.evaluate(inputs, in_float64=False)

    def _error(self, found: Mismatch) -> WrongResult:
        which = list(self.reference.outputs).index(found.variable)
        at = f"[{', '.join(map(str, found.index))}]"
        kernels = f"kernel {' and '.join(self.kernels)}" if self.kernels else "native code"
        return WrongResult(
            f"{self.reference.name}: {kernels} computes {found.variable}{at} = {found.got!s}, "
            f"expected {found.expected!s}; {found.wrong} of {found.size} elements differ, by up to "
            f"{found.largest:.3g}",
            op=self.reference.writer(which).text,
            source=self.reference.writer(which).source,
            hint="run it in NumPy with FLUID_TARGET=numpy, and report the op with these sizes",
        )


# ---- differences -------------------------------------------------------------------------------


def differing(got: Array, expected: Array, rounding: float) -> tuple[Array, Array]:
    """Which elements differ by more than rounding, and all differences, in float64.

    NaN equals NaN. Integers and booleans must be equal.
    """
    if not is_floating(got.dtype):
        unequal = got != expected.astype(got.dtype, copy=False)
        return unequal, np.abs(got.astype(np.float64) - expected.astype(np.float64))
    ours, theirs = got.astype(np.float64), _in_range(expected, got.dtype)
    with np.errstate(all="ignore"):
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        away = np.where(same, 0.0, np.abs(ours - theirs))
        allowed = rounding * np.abs(theirs) + _smallest(got.dtype)
        return ~same & ~(away <= np.where(np.isfinite(theirs), allowed, 0.0)), away


def explained(got: Array, expected: Array, others: Sequence[Any], rounding: float) -> Array:
    """Which elements are among, or near, the results of a reference that rounds differently."""
    near = np.zeros(got.shape, bool)
    for other in others:
        near |= ~differing(got, np.asarray(other), rounding)[0]
    if not is_floating(got.dtype):
        return near
    with np.errstate(all="ignore"):
        theirs = _in_range(expected, got.dtype)
        changes = [np.abs(_in_range(other, got.dtype) - theirs) for other in others]
        spread: Array = np.nan_to_num(np.maximum.reduce(changes), nan=np.inf, posinf=np.inf)
        finite = np.asarray(spread[np.isfinite(spread)], np.float64)
        usual = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
        allowed = SLACK * np.maximum(spread, usual)
        return near | (np.abs(got.astype(np.float64) - theirs) <= allowed)


def _in_range(array: Any, dtype: np.dtype[Any]) -> Array:
    """The values in float64 after rounding to the range of a type, but not to its digits."""
    wide = np.asarray(array).astype(np.float64)
    with np.errstate(all="ignore"):
        stored = wide.astype(dtype).astype(np.float64)
    return np.where(np.isfinite(stored), wide, stored)


def _smallest(dtype: np.dtype[Any]) -> float:
    """The magnitude below which values count as zero: denormals of float32 and float64."""
    return 2.0**-24 if dtype.name == "float16" else 2.0**-1022 if dtype.itemsize == 8 else 2.0**-125


def _nudged(inputs: Inputs, generator: np.random.Generator) -> Inputs:
    """Inputs of which every float is changed by about one unit in its last place."""
    return {name: _changed(array, generator) for name, array in inputs.items()}


def _changed(array: Any, generator: np.random.Generator) -> Any:
    if is_shape(array) or not is_floating(array.dtype):
        return array
    unit = {2: 2.0**-9, 4: 2.0**-24, 8: 2.0**-53}[array.dtype.itemsize]
    signs = generator.choice(np.array([-1.0, 1.0]), array.shape)
    return array.astype(np.float64) * (1.0 + 2.0 * unit * signs)


def _appended(known: list[Inputs], value: Inputs) -> Inputs:
    """Append a value to a list; return the value."""
    known.append(value)
    return value


def _cast(arrays: Inputs, types: Inputs) -> Inputs:
    """Arrays in the types of others of the same names."""
    return {
        name: array if is_shape(array) else array.astype(types[name].dtype)
        for name, array in arrays.items()
    }


def _relative(away: Array, expected: Array) -> float:
    """The largest difference divided by the largest finite magnitude."""
    if not away.size:
        return 0.0
    magnitudes = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    largest = np.max(np.where(np.isfinite(away), away, 0.0))
    return float(largest / (float(magnitudes.max(initial=0.0)) or 1.0))


def _mismatch(name: str, wrong: Array, got: Array, expected: Array, away: Array) -> Mismatch:
    index = tuple(
        int(position) for position in np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    )
    largest = float(np.max(np.where(wrong, away, 0.0)))
    count = int(np.count_nonzero(wrong))
    return Mismatch(name, index, expected[index], got[index], largest, count, wrong.size)
