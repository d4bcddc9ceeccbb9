"""Outcomes of a case of an attack: what compiling and running it gave."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compiler.errors import CompileError
from compiler.support.tracebacks import unfiltered
from runtime.errors import OutOfBounds

RESULT, REFUSED, TYPED, BOUNDS, UNTYPED, DIFFERS, CRASH, HANG = (
    "result", "data refused", "typed error", "out of bounds", "untyped error", "differs", "crash",
    "hang",
)  # fmt: skip
LARGE, RANDOM, SLOW, UNDERFLOW, ROUNDING = (
    "large", "random", "slow reference", "underflow", "rounding",
)  # fmt: skip
"""Kinds of cases that have no result to compare. In native code denormal numbers are zero, so its
results may differ where the reference implementation underflows. Where rounding is amplified, both
results are as far from the exact one, or depend on the order of a product that overflows.
"""
ALLOWED = (RESULT, LARGE, RANDOM, SLOW, UNDERFLOW, ROUNDING, REFUSED, TYPED)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: its kind, and the error or difference as text."""

    kind: str
    text: str = ""

    @property
    def failed(self) -> bool:
        """Whether the outcome is not an allowed one."""
        return self.kind not in ALLOWED


def attempted(run: Callable[[], Outcome], faults: tuple[type[Exception], ...]) -> Outcome:
    """The outcome of a run, or of the error that it raises; `faults` are untyped errors."""
    try:
        return run()
    except OutOfBounds as error:
        return Outcome(BOUNDS, str(error))
    except CompileError as error:
        return Outcome(TYPED, f"{type(error).__name__}: {error}")
    except faults as error:
        where = traceback.extract_tb(unfiltered(error))[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return Outcome(UNTYPED, f"{type(error).__name__}: {error!s:.200} ({place})")
