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
    found = Counter(
        kind_of_skip(each.reason) if each.outcome == "skipped" else each.outcome
        for each in outcomes
    )
    return {"file": file, **{name: found[name] for name in list(COLUMNS)[1:]}}


def total(rows: Sequence[Row]) -> Row:
    """The sums of all files."""
    sums = {name: sum(each[name] for each in rows) for name in list(COLUMNS)[1:]}
    return {"file": "all", **sums}


def report(files: Sequence[Sequence[Outcome]], title: str = "Operator tests") -> str:
    """The table, a line for each failure, and whether there is none."""
    rows = [row(found[0].file, found) for found in files]
    all_files = total(rows)
    columns = {
        name: form
        for name, form in COLUMNS.items()
        if name in ("file", "passed", "failed") or all_files[name]
    }
    lines = [table(title, [*rows, all_files], columns)]
    failures = [each for found in files for each in found if each.outcome == "failed"]
    lines += [f"  {each.file} {each.test}: {each.reason}" for each in failures]
    ran = all_files["passed"] + all_files["failed"]
    lines.append(goal(f"{len(failures)} of {ran} tests fail", not failures, "0"))
    return "\n".join(lines)
