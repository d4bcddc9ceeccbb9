"""Hostile strings everywhere in a saved model: none is executed or escapes its quotes.

Each recorded model gets other strings: all variable names and all texts of bookkeeping attributes
at once, in many families (line breaks, quotes, markup, control characters, names that collide in
Python), or one string of its file at a time. If a model is accepted, its code for NumPy and for
Triton has the same syntax tree as with plain names, its numbers are equal, and so are the elements
of its report, its drawing and its text; the output of commands controls no terminal.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bench.support.table import goal
from compiler.errors import CompileError
from compiler.ir.text.parser import parse_program
from compiler.ir.text.printer import show
from runtime.files.checkpoint import CheckpointError
from tools.verify.attacks.holds import CHECKS, Renamed, every_name, harmless, printable
from tools.verify.attacks.payloads import PAYLOADS, Names, executed, families, steers
from tools.verify.attacks.renaming import Original, originals, spots, with_string

TYPED = (CompileError, CheckpointError)
"""Errors that a user may get instead of a result."""

FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError,
    RuntimeError, StopIteration, SyntaxError, TypeError, ValueError,
)  # fmt: skip
"""Errors that fail a case; others end the attack."""

SLOW = {"code": 4, "texts": 4, "commands": 8, "kernels": 32}
"""Checks run per model for one of so many families; together the models cover all families."""


@dataclass
class Tally:
    """Counts of cases that held and that were rejected, by kind; failures as text."""

    held: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """The total number of cases."""
        return self.held.total() + self.refused.total() + len(self.failures)

    def __str__(self) -> str:
        kinds = dict.fromkeys([*self.held, *self.refused])
        rows = [
            f"  {kind}: {self.held[kind]:,} held, {self.refused[kind]:,} refused" for kind in kinds
        ]
        failed = [f"  FAILED {failure}" for failure in self.failures]
        last = f"{len(self.failures)} of {self.cases:,} models with hostile strings fail"
        return "\n".join([*rows, *failed, goal(last, not self.failures, "0")])


def attack_all(
    models: Sequence[Original], ways: Mapping[str, Names], checks: Sequence[str], tally: Tally,
    first: int = 0,
) -> None:  # fmt: skip
    """Check every model with every family, all strings at once; `first` is the first model's
    number.
    """
    for place, original in enumerate(models, first):
        plain = harmless(original)
        for number, (what, names) in enumerate(ways.items(), place):
            model = every_name(original, names, names(0))
            for check in checks:
                if len(ways) < SLOW.get(check, 1) or number % SLOW.get(check, 1) == 0:
                    case = f"{original.name}, all names: {what}, {check}"
                    _judge(case, check, tally, partial(CHECKS[check], model, plain), whole=True)


def attack_each(models: Sequence[Original], every: int, tally: Tally) -> None:
    """Check every `every`-th string of a model's file, replaced alone."""
    texts = [*PAYLOADS.values(), ""]
    for original in models:
        for spot in range(0, spots(original.message), every):
            text = texts[(spot // every) % len(texts)]
            case = f"{original.name}, string {spot}: {text!r}"
            _judge(case, "one string", tally, partial(_one, original, spot, text))


def _one(original: Original, spot: int, text: str) -> None:
    """Check that a model with one replaced string is rejected, or its code and text are valid."""
    model = Renamed(original, with_string(original.message, spot, text), {})
    study = model.study()
    printable(study.module.source)
    compile(study.module.source, "module", "exec")
    shown = show(model.program)
    assert show(parse_program(shown)) == shown
    printable(shown)


def _judge(
    case: str, kind: str, tally: Tally, run: Callable[[], None], whole: bool = False
) -> None:
    """Run a case and count its outcome; a `whole` model, all renamed, must not be rejected."""
    refused = ""
    try:
        run()
    except TYPED as error:
        refused = str(error) or "nothing"
    except FAULTS as error:
        tally.failures.append(f"{case}: {type(error).__name__}: {str(error)!r:.300}")
        return
    if executed():
        tally.failures.append(f"{case}: code of the model was EXECUTED")
    elif refused and whole:
        tally.failures.append(f"{case}: is refused: {refused!r:.300}")
    elif steers(refused):
        tally.failures.append(f"{case}: the message steers a terminal: {refused!r:.300}")
    else:
        (tally.refused if refused else tally.held)[kind] += 1


def main(arguments: Sequence[str]) -> int:
    """Run the attack; return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="attack.py strings", description=__doc__)
    parser.add_argument("--models", default="", metavar="NAME,NAME", help="only these models")
    parser.add_argument("--every", type=int, default=1, help="each so many strings, one by one (1)")
    parser.add_argument("--checks", default=",".join(CHECKS), help="what is held (%(default)s)")
    options = parser.parse_args(arguments)
    if "kernels" in options.checks:
        os.environ["TRITON_INTERPRET"] = "1"
    wanted = options.models.split(",")
    models = [original for original in originals() if not options.models or original.name in wanted]
    tally, start = Tally(), time.perf_counter()
    for place, model in enumerate(models):
        attack_all([model], families(), options.checks.split(","), tally, place)
        attack_each([model], options.every, tally)
        spent = time.perf_counter() - start
        print(f"{model.name}: {tally.cases:,} cases so far, {spent:.0f} s", flush=True)
    print(tally)
    return 1 if tally.failures else 0
