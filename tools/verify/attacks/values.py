"""Hostile values in every input of every op, on native code that checks its bounds.

Each sample of an op, and of its gradient op, is compiled once. It is then run with each of its
inputs replaced by ids, counts, coordinates and offsets out of any range, in child processes with
limits of memory and time. A run must return results of the declared types and shapes, or raise one
of the project's errors. Everything else fails: an access out of bounds, a crash, a hang, an error
of another type, offsets that do not fit the rows they were returned with. Exit code 1 if one does.
"""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import struct
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import runtime
from bench.support.table import goal, table
from compiler.codegen.offset_checks import expect_offsets
from compiler.driver import compile_graph
from compiler.errors import CompileError, ShapeError
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import find, listed
from compiler.ir.types import DType
from compiler.options import Options
from compiler.support.tracebacks import unfiltered
from runtime.errors import OutOfBounds
from tests.ops.test_generated import NOBODY, Case, graph_of
from tools.verify.attacks.attributes import is_absent
from tools.verify.attacks.hostile_values import calls, hostile_feeds
from tools.verify.fuzz_files import FAULTS
from tools.verify.support.children import Limits, call_in_children

RESULT, TYPED, SHAPE, OFFSETS, UNTYPED, BOUNDS, CRASH, HANG = KINDS = (
    "result", "typed error", "wrong shape", "wrong offsets", "untyped error", "out of bounds",
    "crash", "hang",
)  # fmt: skip
ALLOWED = (RESULT, TYPED)
WORD = struct.Struct("q")


@dataclass(frozen=True)
class Unit:
    """Runs of one call in one process: with its hostile feeds from `start` to before `stop`.

    `named` gives its batch size a name, so that the code is for any.
    """

    call: Any
    named: bool
    start: int = 0
    stop: int | None = None

    def __str__(self) -> str:
        sizes = " with a named size" * self.named
        return f"{self.call.op}({dict(self.call.attrs)!r:.200}){sizes}"


@dataclass
class Found:
    """The outcomes of a unit: how many of each kind, and each failure as its kind and text."""

    counts: Counter[str]
    failures: list[tuple[str, str]]

    def add(self, kind: str, text: str) -> None:
        """Count an outcome."""
        self.counts[kind] += 1
        if kind not in ALLOWED:
            self.failures.append((kind, text))


def attempt(unit: Unit, seconds: float = 20.0, progress: Any = None) -> Found:
    """Compile a call and run it with its hostile feeds; a run that takes longer ends the process.

    `progress(index)` is called before each run, with the number of its feed.
    """
    summary = Found(Counter(), [])
    case = _case(unit)
    full = [s for s, v in case.results.items() if any(np.size(array) for array in listed(v))]
    names = [slot for slot in full for _ in listed(case.results[slot])]
    step, feed = _compiled(case, full, _batch(unit))
    for index, (words, hostile) in enumerate(hostile_feeds(feed)):
        if index < unit.start or (unit.stop is not None and index >= unit.stop):
            continue
        if progress is not None:
            progress(index)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        kind, text = _run(step, hostile, case, names)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        summary.add(kind, f"{words}: {text}")
    return summary


def _compiled(case: Case, outputs: list[str], batch: int) -> tuple[Any, dict[str, Any]]:
    """The step of a call, which has run once, and its feed; a size that is `batch` has a name.

    Sizes may be equal by chance, and an op that needs one of them to be a number gets no name.
    """
    graph, feed = graph_of(case, outputs, batch)
    graph.results = [_read_by_kernel(graph, var) for var in graph.results]
    compiled = compile_graph(graph, target="native", options=Options(check=1))
    step = runtime.load(compiled.module)
    try:
        step(feed)
    except ShapeError:
        if batch == NOBODY:
            raise
        return _compiled(case, outputs, NOBODY)
    return step, feed


def _read_by_kernel(graph: Graph, var: Var) -> Var:
    """A value of data-dependent size as a kernel reads it, which relies on its other sizes."""
    if not var.type.is_open or var.type.is_array or var.type.dtype is DType.BOOL:
        return var
    read = graph.var(f"{var.name}.read", var.type)
    graph.op("scale", {"X": [var]}, {"Out": [read]}, {"scale": 2.0})
    return read


def _case(unit: Unit) -> Case:
    """The call with its outputs."""
    call = unit.call
    defn = find(call.op)(call.attrs)
    outputs = defn.evaluate(call.values)
    results = {slot: value for slot, value in outputs.items() if not is_absent(call, defn, slot)}
    values = {slot: value for slot, value in call.values.items() if value is not None}
    return Case(call.op, call.attrs, values, results)


def _batch(unit: Unit) -> int:
    """The size that gets a name: the rows of the first input; none if no size does."""
    arrays = [array for value in unit.call.values.values() for array in listed(value)]
    rows = [len(array) for array in arrays if np.ndim(array)]
    return rows[0] if unit.named and rows else NOBODY


def _run(step: Any, feed: dict[str, Any], case: Case, names: Sequence[str]) -> tuple[str, str]:
    """The outcome of one run as kind and text."""
    try:
        results = step(feed)
    except OutOfBounds as error:
        return BOUNDS, str(error)
    except CompileError as error:
        return TYPED, f"{type(error).__name__}: {error}"
    except FAULTS as error:
        where = traceback.extract_tb(unfiltered(error))[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return UNTYPED, f"{type(error).__name__}: {error!s:.200} ({place})"
    return _judged(step, results, case, names)


def _judged(step: Any, results: Sequence[Any], case: Case, names: Sequence[str]) -> tuple[str, str]:
    """Whether results have the types and shapes of the module, and derived offsets fit."""
    for tensor, result in zip(step.module.fetches, results, strict=True):
        sizes = [step.sizes.get(str(size), size) for size in tensor.shape]
        pairs = zip(sizes, result.shape, strict=False)
        fits = all(not isinstance(size, int) or size == number for size, number in pairs)
        if result.dtype != tensor.dtype or len(sizes) != result.ndim or not fits:
            return SHAPE, f"{result.dtype}{result.shape}, expected {tensor.dtype}{tensor.shape}"
    return _judged_offsets(results, case, names) if _derives(case) else (RESULT, "")


def _derives(case: Case) -> bool:
    return find(case.op).derives_offsets


def _judged_offsets(results: Sequence[Any], case: Case, names: Sequence[str]) -> tuple[str, str]:
    """Whether the offsets that an op derives fit the rows of its output."""
    by_slot: dict[str, list[Any]] = {}
    for slot, result in zip(names, results, strict=True):
        by_slot.setdefault(slot, []).append(result)
    for slot in find(case.op).outputs().values():
        levels = by_slot.get(slot.name, [])
        if slot.companion != "lod" or slot.of not in by_slot or not levels:
            continue
        ends = [*(len(level) - 1 for level in levels[1:]), len(by_slot[slot.of][0])]
        try:
            for level, end in zip(levels, ends, strict=True):
                expect_offsets(level, end, slot.name, "items")
        except ValueError as error:
            return OFFSETS, str(error)
    return RESULT, ""


# ---- in children --------------------------------------------------------------------------------


def run(units: Sequence[Unit], limits: Limits, workers: int) -> list[Found]:
    """The outcomes of units; what follows a run that ended its process is run in another."""
    summaries = [Found(Counter(), []) for _ in units]
    pending = list(enumerate(units))
    while pending:
        pending = _run_round(pending, summaries, limits, workers)
    return summaries


def _run_round(
    pending: Sequence[tuple[int, Unit]], found: list[Found], limits: Limits, workers: int
) -> list[tuple[int, Unit]]:
    """Run units once; returns those that remain because a run ended its process."""
    shared = mmap.mmap(-1, WORD.size * len(pending))

    def attempted(index: int) -> Found | str:
        def progress(number: int) -> None:
            WORD.pack_into(shared, WORD.size * index, number + 1)

        try:
            return attempt(pending[index][1], limits.seconds, progress)
        except FAULTS as error:  # of the attack itself: the sample cannot be compiled or run
            return "".join(traceback.format_exception(error)[-3:])

    whole = replace(limits, seconds=600.0, first_seconds=600.0)
    results = call_in_children(attempted, len(pending), whole, lambda _, why: why, workers)
    remaining: list[tuple[int, Unit]] = []
    for index, (place, unit) in enumerate(pending):
        result = results[index]
        if isinstance(result, Found):
            found[place].counts += result.counts
            found[place].failures += result.failures
            continue
        (number,) = WORD.unpack_from(shared, WORD.size * index)
        alarm = f"exit code -{signal.SIGALRM.value}"
        kind = HANG if alarm in result or result.startswith("hang") else CRASH
        words = _words(unit, number - 1) if number else "without hostile values"
        found[place].add(kind, f"{words}: {result}")
        if number:
            halves = replace(unit, stop=number - 1), replace(unit, start=number)
            remaining += [(place, half) for half in halves if half.start != half.stop]
    return remaining


def _words(unit: Unit, number: int) -> str:
    """The words for a hostile feed, by its number."""
    _, feed = graph_of(_case(unit), [], NOBODY)
    return next(islice(hostile_feeds(feed), number, None), ("no feed", {}))[0]


def report(units: Sequence[Unit], found: Sequence[Found], shown: int) -> str:
    """The counts of outcomes, the first failures of each call, and whether the goal is met."""
    counts = sum((summary.counts for summary in found), Counter[str]())
    row = {"calls": len(units), "runs": counts.total(), **{kind: counts[kind] for kind in KINDS}}
    failures = [(u, f) for u, summary in zip(units, found, strict=True) for f in summary.failures]
    lines = [f"  {kind}: {unit}\n      {text}" for unit, (kind, text) in failures[:shown]]
    text = table("Values", [row], dict.fromkeys(row, ",d"))
    done = goal(f"{len(failures):,} of {counts.total():,} fail", not failures, "0")
    return "\n".join([text, *lines, done])


def main(arguments: Sequence[str]) -> int:
    """Run the attack; return 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="attack.py values", description=__doc__)
    parser.add_argument("--only", default="", help="ops whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="take every n-th call (%(default)s)")
    parser.add_argument("--named", action="store_true", help="batch sizes have names")
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of a run (%(default)s)")
    parser.add_argument("--memory", type=int, default=3, help="limit in GiB (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--show", type=int, default=20, help="failures to print (%(default)s)")
    options = parser.parse_args(arguments)
    os.environ["FLUID_CHECK"] = "1"
    units = [Unit(call, options.named) for call in calls(options.only)[:: options.every]]
    start = time.perf_counter()
    summaries = run(units, Limits(options.memory << 30, options.seconds), options.workers)
    print(report(units, summaries, options.show))
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    return int(any(summary.failures for summary in summaries))
