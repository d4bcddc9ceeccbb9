"""Prints what the checks of `fluid doctor` saw; shows and empties caches for `fluid cache`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from compiler.errors import did_you_mean
from compiler.report.memory import size_text
from fluid.cli.model import CommandError
from fluid.doctor.caches import KINDS, cache_folder, clear, nbytes, unusable
from fluid.doctor.checks import CHECKS
from fluid.doctor.diagnosis import Diagnosis

__all__ = ["cache", "doctor"]

MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}
WIDTH = 22
"""Columns of a finding's subject."""


def doctor(args: argparse.Namespace) -> int:
    """Run every check and print its findings; returns 1 if one is a problem."""
    report = {name: list(check()) for name, check in CHECKS.items()}
    findings = [finding for section in report.values() for finding in section]
    if args.json:
        sections = {name: [asdict(each) for each in section] for name, section in report.items()}
        print(json.dumps(sections, indent=1))
    else:
        for name, section in report.items():
            print(f"{name}\n" + "\n".join(map(line, section)) + "\n")
        print(summary(findings))
    return int(any(finding.state == "problem" for finding in findings))


def line(finding: Diagnosis) -> str:
    """A diagnosis as text: its state, subject and what was seen; advice below it.

    >>> print(line(Diagnosis("numpy", "not installed", "problem", "pip install numpy")))
      PROBLEM  numpy                   not installed
               → pip install numpy
    """
    text = f"  {MARKS[finding.state]}  {finding.subject:{WIDTH}}  {finding.seen}"
    advised = finding.advice and finding.state != "ok"
    return text + (f"\n{'':11}→ {finding.advice}" if advised else "")


def summary(findings: list[Diagnosis]) -> str:
    """What follows from all findings, and what to do next."""
    problems = [finding for finding in findings if finding.state == "problem"]
    if not problems:
        return "No problem. `fluid selftest` compares the native kernels with the reference."
    names = ", ".join(finding.subject for finding in problems)
    plural = "s" * (len(problems) > 1)
    return f"{len(problems)} problem{plural} ({names}): do what follows → and run it again."


def cache(args: argparse.Namespace) -> int:
    """Show the size of each cache, or empty one or all.

    Raises CommandError for an unknown one and for a folder that cannot be used, and NotPrivate for
    a folder of another user.
    """
    if args.kind not in (None, *KINDS):
        hint = did_you_mean(args.kind, KINDS) or f"expected {', '.join(KINDS)}"
        raise CommandError(f"{args.kind!r} is no cache; {hint}")
    root = cache_folder()
    reason = unusable(root)
    if reason and not root.is_dir():
        raise CommandError(f"{reason}: set FLUID_CACHE to a folder of your own")
    present = [kind for kind in KINDS if args.kind in (None, kind) and (root / kind).is_dir()]
    for kind in present:
        place = root / kind
        if args.action == "clear":
            print(f"{place}: {size_text(clear(kind))} removed")
        else:
            print(f"{place}: {size_text(nbytes(place))}")
    if not present:
        print(f"{root}: nothing is cached")
    return 0
