"""Whether results are right: against float64, with allowance for what rounding alone explains.

An element is *beyond* if it differs from float64 by more than a tolerance, relative to itself and
to the largest number of its array. What is beyond is explained, in this order, by

1. the same in float32, computed by NumPy: it may be as far off;
2. conditioning: the oracle itself moves as far when inputs change by a few rounding errors;
3. a branch within rounding, such as a ReLU whose argument is 1e-8. The oracle then jumps as far
   when inputs change a little more, and the elements are others for other inputs: an element is
   wrong if it is beyond for each of three draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from compiler.ir.types import is_floating
from compiler.support.cached_property import cached_property
from tools.verify.sizing.problem import NARROWEST, Arrays, Problem, Refused, reference

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}
"""Largest error relative to the largest number of an array, by its type."""
ROUNDING, NUDGE = 2.0**-22, 2.0**-12
"""Relative changes of inputs: some rounding errors, and enough that branches are taken."""
NARROW = {"float16": (2.0**-10, 2.0**-6), "bfloat16": (2.0**-7, 2.0**-4)}
"""The same for results in half precision, whose steps round to it, too."""
DRAWS = 3
SLACK = 4
"""How many times as large as an explanation an error may be."""

REFUSALS = (ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of the reference for inputs that it does not accept."""
Run = Callable[[Problem], Arrays]
Masks = dict[str, np.ndarray]


def differences(make: Callable[[int], Problem], run: Run) -> Iterator[str]:
    """A line for each result that is wrong; empty if there is none."""
    first = Judged(make(0), run)
    if first.shapes:
        yield from first.shapes
        return
    wrong, others = first.wrong(), iter(range(1, DRAWS))
    while any(first.jumps(name, mask) for name, mask in wrong.items()) and (
        seed := next(others, None)
    ):
        again = Judged(make(seed), run).wrong()
        wrong = {
            n: m for n, mask in wrong.items() if (m := first.unexplained(n, mask, again)).any()
        }
    for name, mask in wrong.items():
        yield first.line(name, mask)


@dataclass(frozen=True)
class Judged:
    """The results of one draw beside what explains their errors, computed when it is needed."""

    problem: Problem
    run: Run

    @cached_property
    def want(self) -> Arrays:
        """The oracle; in the types of the graph if ops insist on these. Raises Refused."""
        try:
            return reference(self.problem)
        except REFUSALS:
            return self._narrow_oracle()

    def _narrow_oracle(self) -> Arrays:
        try:
            return self.narrow
        except REFUSALS as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    @cached_property
    def got(self) -> Arrays:
        """What the target computes."""
        if not self.want:
            raise Refused("there are no results")
        return self.run(self.problem)

    @cached_property
    def narrow(self) -> Arrays:
        """The reference in the types of the graph."""
        return reference(self.problem, wide=False)

    @cached_property
    def rounded(self) -> list[Arrays]:
        """The oracle for inputs that differ by rounding errors."""
        return [reference(self.problem, noise=self._noise[0], seed=seed) for seed in range(DRAWS)]

    @cached_property
    def nudged(self) -> list[Arrays]:
        """The oracle for inputs that differ by more."""
        return [reference(self.problem, noise=self._noise[1], seed=seed) for seed in range(2)]

    @property
    def _noise(self) -> tuple[float, float]:
        """The relative changes of inputs that rounding explains."""
        types = {array.dtype.name for array in self.got.values()}
        return next((NARROW[kind] for kind in NARROW if kind in types), (ROUNDING, NUDGE))

    @property
    def shapes(self) -> list[str]:
        """A line for each result of another shape or type than expected."""
        pairs = ((name, self.got[name], want) for name, want in self.want.items())
        return [
            f"{name}: shape {got.shape}, expected {want.shape}"
            for name, got, want in pairs
            if got.shape != want.shape
        ]

    def wrong(self) -> Masks:
        """The elements by result that neither float32 nor conditioning explains."""
        masks = dict[str, np.ndarray]()
        for name, got in self.got.items():
            mask = self.error(name, got) > self.limit(name)
            for explain in (lambda: [self.narrow], lambda: self.rounded):
                if mask.any():
                    moved = np.maximum.reduce([self.error(name, a[name]) for a in explain()])
                    mask = self._not_explained(name, mask, moved)
            if mask.any():
                masks[name] = mask
        return masks

    def error(self, name: str, other: np.ndarray) -> np.ndarray:
        """How far each element is from the oracle: infinite where only one is a number.

        Different integers count as different by 1 or more.
        """
        want = self.want[name]
        if other.shape != want.shape:
            return np.full(want.shape, np.inf)
        if not is_floating(self.got[name].dtype):
            return np.abs(other.astype(np.float64) - want.astype(np.float64))
        with np.errstate(all="ignore"):
            a = other.astype(self.got[name].dtype).astype(np.float64)
            b = want.astype(self.got[name].dtype).astype(np.float64)
            apart = np.abs(a - b)
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
        apart[np.isnan(apart)] = np.inf
        if self.got[name].dtype != np.float64:
            apart[apart < NARROWEST] = 0
        return apart

    def limit(self, name: str) -> np.ndarray:
        """The largest error of each element that counts as rounding."""
        got, want = self.got[name], np.abs(self.want[name].astype(np.float64))
        if not is_floating(got.dtype):
            return np.zeros(want.shape)
        tolerance = TOLERANCE[got.dtype.name]
        scale = want[np.isfinite(want)].max(initial=0)
        near = np.nan_to_num(want, nan=0, posinf=0)
        return np.asarray(0.1 * tolerance * scale + np.minimum(tolerance * scale, 0.05 * near))

    def _not_explained(self, name: str, mask: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """The elements that are further off than these, or nine of ten elements, move."""
        usual = np.quantile(moved, 0.9, method="lower")
        return mask & (self.error(name, self.got[name]) > SLACK * np.maximum(moved, usual))

    def jumps(self, name: str, mask: np.ndarray) -> bool:
        """Whether the oracle jumps as far as the errors when its inputs change a little."""
        error = self.error(name, self.got[name])[mask].max()
        return any(self.error(name, a[name]).max(initial=0) * 2 >= error for a in self.nudged)

    def unexplained(self, name: str, mask: np.ndarray, again: Masks) -> np.ndarray:
        """The elements that are wrong in another draw, too, or that cannot come by chance."""
        if not self.jumps(name, mask):
            return mask
        other = again.get(name, np.zeros_like(mask))
        return mask & other if other.shape == mask.shape else mask

    def line(self, name: str, mask: np.ndarray) -> str:
        """What is wrong with a result: its largest error, where, and how many elements."""
        error = np.where(mask, self.error(name, self.got[name]), 0)
        place = np.unravel_index(int(error.argmax()), error.shape)
        got, want = self.got[name][place], self.want[name][place]
        where = "".join(f"[{int(i)}]" for i in place)
        return (
            f"{name}{where} is {got:.7g}, expected {want:.7g}; {mask.sum()} of {mask.size} differ"
        )
