"""Arrays of ordinary sizes: every op and many small programs, on each target, against float64.

A case is an op sample with larger arrays, or a program of a few layers; forward, gradients, and the
state that optimizers leave. Sizes are primes and powers of two, some MiB each (`--scale real`) or
some thousand elements (`--scale small`); there are rows, columns and empty arrays, static sizes and
named ones. The oracle is the reference implementation in float64; what differs must be explained by
float32 in NumPy, by conditioning, or by a branch within rounding (tools/verify/sizing/judge.py).

    python tools/verify/sizes.py                                  all cases, native, 1 and 2 threads
    python tools/verify/sizes.py --only batch_norm                those with this text in their name
    python tools/verify/sizes.py --slice 3/14 --seconds 600       a 14th of the programs and samples
    python tools/verify/sizes.py --target triton --scale small       Triton's interpreter
    python tools/verify/sizes.py --list | less                       the names of cases

Targets are numpy, native (machine code of this CPU; results must have the same bits with each
number of threads), triton (kernels in Triton's interpreter), ptx (kernels on the machine that runs
PTX without a GPU) and cuda (a GPU). Cases run in child processes with limits of time and memory. A
failure is a line (wrong, raised, crash or hang) and the command that repeats it. Not counted as
failures: "refused" by the reference, "slow" in the reference, "on the host" (no kernels).
The exit code is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.support.lines import append
from bench.support.table import goal, table
from tools.verify.sizing.layer_cases import layer_cases
from tools.verify.sizing.op_cases import op_cases
from tools.verify.sizing.problem import Case
from tools.verify.sizing.sweep import FAILED, Outcome, counts, failures, outcome, run_cases
from tools.verify.sizing.targets import WAYS
from tools.verify.support.children import Limits


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--target", choices=WAYS, default="native", help="what generates the code (%(default)s)")
    add("--scale", choices=("real", "small"), default="real", help="sizes (%(default)s)")
    add("--only", default="", metavar="TEXT", help="cases with this text in their name")
    add(
        "--slice",
        default="0/1",
        metavar="I/N",
        help="every N-th program and op sample, from number I on",
    )
    add("--count", type=int, metavar="N", help="at most so many cases")
    add("--seconds", type=float, default=float("inf"), help="start no case after so many seconds")
    add("--case-seconds", type=float, default=60, help="a case hangs after so many (%(default)s)")
    add("--memory", type=float, default=8, metavar="GIB", help="of a child process (%(default)s)")
    add("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="native (1 and 2)")
    add("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes (%(default)s)")
    add("--list", action="store_true", help="print the names of cases and run none")
    add("--json", type=Path, metavar="FILE", help="append every outcome, as lines of JSON")
    return parser


def chosen(given: argparse.Namespace) -> list[Case]:
    """The cases that the command line asks for; raises SystemExit for a slice that is none."""
    first, _, step = given.slice.partition("/")
    if not (first.isdecimal() and step.isdecimal() and int(first) < int(step)):
        raise SystemExit(f"--slice is {given.slice!r}, expected I/N with I below N, such as 0/4")
    part = int(first), int(step)
    programs = list(layer_cases(given.scale))[part[0] :: part[1]]
    cases = [*programs, *op_cases(given.scale, given.only, part)]
    return [case for case in cases if given.only in case.name][: given.count]


def reporter(total: int, given: argparse.Namespace) -> Callable[[Outcome], None]:
    """A function that prints each failure, and how many cases are done."""
    since, done, failed = time.monotonic(), 0, 0
    end = "\r" if sys.stderr.isatty() else "\n"

    def report(result: Outcome) -> None:
        nonlocal done, failed
        done += 1
        if result.state in FAILED:
            failed += 1
            print(
                f"{result.state}: {result.name}: {result.text}\n    {repeat(result, given)}",
                flush=True,
            )
        if end == "\r" or done % 100 == 0 or done == total:
            seconds = time.monotonic() - since
            text = f"{done} of {total} cases, {failed} failed, {seconds:.0f} s"
            print(text, end=end, file=sys.stderr, flush=True)

    return report


def repeat(result: Outcome, given: argparse.Namespace) -> str:
    """The command that runs a case again."""
    scale = "" if given.scale == "real" else f" --scale {given.scale}"
    return f"python tools/verify/sizes.py --target {given.target}{scale} --only '{result.name}'"


def summary(outcomes: Sequence[Outcome], target: str, seconds: float) -> str:
    """A table of the outcomes by state, and whether the goal is met."""
    row = {"target": target, "cases": len(outcomes), **counts(outcomes), "seconds": round(seconds)}
    failed = len(list(failures(outcomes)))
    columns = {name: "" if name == "target" else ",d" for name in row}
    return table("Sizes", [row], columns) + "\n" + goal(f"{failed} failed", not failed, "0")


def main() -> int:
    """Run the requested cases and print what failed."""
    options = arguments().parse_args()
    way = WAYS[options.target]
    way.prepare()
    cases, since = chosen(options), time.monotonic()
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    limits = Limits(
        int(options.memory * 2**30),
        options.case_seconds,
        options.case_seconds + 60,
        options.seconds,
    )
    outcomes = run_cases(
        cases,
        lambda case: outcome(case, way, options.threads),
        limits,
        reporter(len(cases), options),
        options.jobs,
    )
    print("\n" + summary(outcomes, options.target, time.monotonic() - since))
    if options.json is not None:
        rows = [{"target": options.target, "scale": options.scale, **asdict(o)} for o in outcomes]
        append(options.json, {"sizes": rows})
    return 1 if any(failures(outcomes)) else 0


if __name__ == "__main__":
    sys.exit(main())
