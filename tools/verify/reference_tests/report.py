"""Counts of tests by file, and every failure with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.support.table import Row, goal, table
from tools.verify.reference_tests.reasons import KINDS, kind_of_skip
from tools.verify.reference_tests.running import Outcome

SKIPS = (*KINDS, "other")
COLUMNS = {"file": "", "passed": ",d", "failed": ",d", **dict.fromkeys(SKIPS, ",d")}


def row(file: str, outcomes: Iterable[Outcome]) -> Row:
    """The counts of a file: passed, failed, and skipped by reason."""
    counts = Counter(
        kind_of_skip(outcome.reason) if outcome.outcome == "skipped" else outcome.outcome
        for outcome in outcomes
    )
    return {"file": file, **{name: counts[name] for name in list(COLUMNS)[1:]}}


def total(rows: Sequence[Row]) -> Row:
    """The sums of all files."""
    sums = {name: sum(counts[name] for counts in rows) for name in list(COLUMNS)[1:]}
    return {"file": "all", **sums}


def report(files: Sequence[Sequence[Outcome]], title: str = "Operator tests") -> str:
    """The table, a line for each failure, and whether there is none."""
    rows = [row(outcomes[0].file, outcomes) for outcomes in files]
    all_files = total(rows)
    columns = {
        name: form
        for name, form in COLUMNS.items()
        if name in ("file", "passed", "failed") or all_files[name]
    }
    lines = [table(title, [*rows, all_files], columns)]
    failures = [
        outcome for outcomes in files for outcome in outcomes if outcome.outcome == "failed"
    ]
    lines += [f"  {failure.file} {failure.test}: {failure.reason}" for failure in failures]
    ran = all_files["passed"] + all_files["failed"]
    lines.append(goal(f"{len(failures)} of {ran} tests fail", not failures, "0"))
    return "\n".join(lines)
