"""Which pass, and which op, first changes numbers; and the smallest program that shows it.

The truth is what a graph means before any pass. Stage by stage the interpreter says what it means
now; behind the last stage the generated code has its turn. Where a stage is off, the program is
cut: to the first ops that show it, then to those that cannot be spared (`test_case_reduction`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from compiler.codegen.module import Module
from compiler.debugging.difference import Difference, difference
from compiler.debugging.test_case_reduction import first_prefix, part, smallest
from compiler.debugging.values import Numbers, Value, numbers, written
from compiler.driver import TARGETS, compile_graph
from compiler.errors import CompileError
from compiler.ir.graph import Graph
from compiler.ir.text.parser import parse
from compiler.ir.text.printer import show
from compiler.ir.types import Array
from compiler.options import Options
from compiler.passes.base import Context, Pass
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import left_out, pipeline

CODE = "code"
"""The stage behind all passes: what the target made of the graph."""

FAILURES = (ValueError, LookupError, ArithmeticError, TypeError, AttributeError, AssertionError)
"""What a pass that is wrong may raise, and the interpreter about what it left."""

Execute = Callable[[Module, Mapping[str, Array], dict[str, Array]], Sequence[Array]]
"""Runs a module on feeds and state, which it changes."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """How a program is compiled and held against its meaning.

    `lend` says whether its state is known while it is compiled, as that of a saved model is;
    `execute` runs generated code, which is not asked where there is none.
    """

    options: Options = field(default_factory=Options)
    target: str = "numpy"
    tolerance: float = 1e-4
    lend: bool = False
    execute: Execute | None = None


@dataclass(frozen=True)
class Fault:
    """A stage that is off: its name, the text before and after it, and the result that moved.

    `difference.why` is the message of the pass where it failed; `after` is then empty. `added` is
    the state that passes up to it have added.
    """

    stage: str
    before: str
    after: str
    difference: Difference
    added: Mapping[str, Array] = field(default_factory=dict[str, Array])


@dataclass(frozen=True)
class Finding:
    """What `bisect` found: the fault in the whole program, the op that is off, and the smallest
    program with its inputs and the options that show it again.

    `op` makes a value as it was before the stage; `became` is how it is made now, None where the
    stage failed. `ops` are the numbers of ops of the whole program and of the smallest.
    """

    fault: Fault
    op: Value
    became: Value | None
    program: str
    feed: Mapping[str, Array]
    params: Mapping[str, Array]
    options: Options
    ops: tuple[int, int]


def bisect(
    graph: Graph,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    trial: Trial | None = None,
    tell: Tell = lambda line: None,
) -> Finding | None:
    """Find the stage that first moves a number beyond the tolerance; None where none does.

    `feed` and `params` are arrays for all feeds and state (made up by
    `compiler.debugging.values.inputs`). `tell` is called with a line about each stage of the
    search. Raises CompileError where the program itself cannot be run on these arrays.
    """
    how, text = trial or Trial(), show(graph)
    try:
        truth = numbers(parse(text), feed, params)
    except FAILURES as error:
        hint = "give it feeds that fit: --input"
        raise CompileError(f"the program cannot be run as it is: {error}", hint=hint) from error
    fault = find_fault(text, truth, feed, params, how, tell)
    if fault is None:
        return None
    found = fault.difference
    tell(f"{fault.stage}: {found.name!r} is off: {found.why}")
    return _shrunk(text, fault, feed, params, how, tell)


def find_fault(
    text: str,
    truth: Numbers,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    trial: Trial,
    tell: Tell = lambda line: None,
) -> Fault | None:
    """The first stage of a compilation that is off, with the graph before and after it."""
    lent = {name: array.copy() for name, array in params.items()} if trial.lend else None
    options = trial.options
    context = Context(lent, options.typical, options.memory_budget)
    seen, graph = _Stages(), parse(text)
    supports = TARGETS[trial.target].supports if trial.target != "numpy" else None
    try:
        run_passes(graph, pipeline(options, supports), context, [seen])
    except FAILURES as error:
        if not seen.running:
            raise
        why = str(error).partition("\n")[0]
        moved = _failed(seen.running, why)
        return Fault(seen.running, seen.texts[-1][1], "", moved, dict(lent or {}))
    known, last = dict(params) | dict(lent or {}), text
    for name, after in seen.texts[1:]:
        if after == last:
            continue
        if name in seen.moving:
            tell(f"{name}: means to move numbers; what it leaves is the truth from here on")
            truth, last = numbers(parse(after), feed, known), after
            continue
        tell(f"{name}: compared")
        found = _moved(parse(after), truth, feed, known, trial.tolerance)
        if found is not None:
            return Fault(name, last, after, found, known)
        last = after
    return _code_fault(text, truth, feed, params, trial, tell)


class _Stages:
    """Keeps the text of each stage, which pass is running, and which of them mean to move numbers,
    as one does that computes in narrower floats.
    """

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self.moving: set[str] = set()
        self.running = ""

    def start(self, g: Graph, ctx: Context) -> None:
        """Keep the graph as it came."""
        self.texts = [("start", show(g))]

    def before(self, each: Pass, g: Graph) -> None:
        """Note which pass is next."""
        self.running = each.name

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Keep what the pass left."""
        self.texts.append((each.name, show(g)))
        self.moving |= set[str]() if each.preserves else {each.name}


def _moved(
    graph: Graph,
    truth: Numbers,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    tolerance: float,
) -> Difference | None:
    """The first result that is not what it was; or what the interpreter says of the graph."""
    try:
        left = numbers(graph, feed, params).left
    except FAILURES as error:
        return _failed(graph.name, str(error).partition("\n")[0])
    return _first_off(left, truth.left, tolerance)


def _first_off(
    left: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float
) -> Difference | None:
    for name, array in wanted.items():
        if name not in left:
            return _failed(name, "it is not computed any more")
        found = difference(name, left[name], array, tolerance)
        if found.why:
            return found
    return None


def _failed(name: str, why: str) -> Difference:
    return Difference(name, float("inf"), float("inf"), why)


def _code_fault(
    text: str,
    truth: Numbers,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    trial: Trial,
    tell: Tell,
) -> Fault | None:
    """Whether generated code computes something else than the graph it was made of means."""
    if trial.execute is None:
        return None
    tell(f"{CODE}: compared")
    state = {name: array.copy() for name, array in params.items()}
    graph = parse(text)
    results, kept = graph.fetches, written(graph)
    try:
        compiled = compile_graph(
            graph, target=trial.target, params=state if trial.lend else None,
            options=replace(trial.options, dump=None),
        )  # fmt: skip
        made = trial.execute(compiled.module, feed, state)
    except FAILURES as error:
        return Fault(CODE, text, "", _failed(CODE, str(error).partition("\n")[0]))
    left = dict(zip(results, made, strict=True)) | {name: state[name] for name in kept}
    found = _first_off(left, truth.left, trial.tolerance)
    return None if found is None else Fault(CODE, text, show(compiled.graph), found)


# ---- the smallest program -----------------------------------------------------------------------


def _shrunk(
    whole: str,
    fault: Fault,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    trial: Trial,
    tell: Tell,
) -> Finding:
    """The fault in as few ops as show it, alone with the faulty pass where that is enough."""
    start, how = _alone(whole, fault, feed, params, trial)
    known = dict(params) | dict(fault.added)
    truth = numbers(parse(start), feed, known)
    values = dict(feed) | {label: value.array for label, value in truth.values.items()}
    again = partial(_fault_of_part, start, fault.stage, values, known, how)

    def fails(kept: Iterable[int]) -> bool:
        return again(kept) is not None

    count = len(parse(start))
    prefix = first_prefix(count, fails)
    tell(f"{fault.stage}: the first {prefix} of {count} ops show it")
    kept = smallest(range(prefix), fails) if fails(range(prefix)) else list(range(count))
    found = again(kept)
    graph = (part(start, kept) if found else None) or parse(start)
    tell(f"{fault.stage}: {len(kept)} of {count} ops are needed")
    op, became = _blamed(found or fault, values, known, how.tolerance)
    return Finding(
        fault, op, became, show(graph),
        {var.name: values[var.name] for var in graph.feeds()},
        {var.name: known[var.name] for var in graph.params() if not var.version},
        how.options, (count, len(kept)),
    )  # fmt: skip


def _alone(
    whole: str,
    fault: Fault,
    feed: Mapping[str, Array],
    params: Mapping[str, Array],
    trial: Trial,
) -> tuple[str, Trial]:
    """Where to begin, and how: just before the faulty pass and without the others, if it is off
    there too; else from the beginning with all of them.
    """
    if fault.stage == CODE:
        return whole, trial
    off = left_out(trial.options.disable, [fault.stage])
    alone = replace(trial, options=replace(trial.options, disable=off), execute=None)
    known = dict(params) | dict(fault.added)
    again = _fault_of_part(fault.before, fault.stage, feed, known, alone, None)
    return (fault.before, alone) if again else (whole, replace(trial, execute=None))


def _fault_of_part(
    text: str,
    stage: str,
    values: Mapping[str, Array],
    params: Mapping[str, Array],
    trial: Trial,
    kept: Iterable[int] | None,
) -> Fault | None:
    """The fault of a stage in a part of a program, or in all of it; None where it is not off."""
    graph = parse(text) if kept is None else part(text, kept)
    if graph is None:
        return None
    feed = {var.name: values[var.name] for var in graph.feeds()}
    state = {var.name: params[var.name] for var in graph.params() if not var.version}
    small = show(graph)
    try:
        found = find_fault(small, numbers(graph, feed, state), feed, state, trial)
    except FAILURES:
        return None
    return found if found is not None and found.stage == stage else None


# ---- the op -------------------------------------------------------------------------------------


def _blamed(
    fault: Fault, values: Mapping[str, Array], params: Mapping[str, Array], tolerance: float
) -> tuple[Value, Value | None]:
    """The op that is off, before and after: the first whose old value, put in its place, makes all
    results right.

    Where no single one does, the op that makes the result that moved; where the stage failed,
    nothing came after.
    """
    before = parse(fault.before)
    feed = {var.name: values[var.name] for var in before.feeds()}
    truth = numbers(before, feed, params)
    after, known = parse(fault.after or fault.before), dict(params) | dict(fault.added)
    try:
        now = numbers(after, feed, known)
    except FAILURES:
        return _maker(truth, fault.difference.name), None
    for label in _off(now, truth, tolerance):
        instead = {label: truth.values[label].array}
        left = numbers(after, feed, known, instead).left
        if _first_off(left, truth.left, tolerance) is None:
            return truth.values[label], now.values[label]
    last = _maker(truth, fault.difference.name)
    return last, now.values.get(last.label) if fault.after else None


def _off(now: Numbers, truth: Numbers, tolerance: float) -> list[str]:
    """The labels of values that are not what they were, in order."""
    return [
        label
        for label, value in now.values.items()
        if label in truth.values
        and difference(label, value.array, truth.values[label].array, tolerance).why
    ]


def _maker(found: Numbers, name: str) -> Value:
    """The value of this name, of which it may be a later version, or the last of all."""
    last = list(found.values.values())[-1]
    same = [v for v in found.values.values() if v.name == name]
    return found.values.get(name) or (same[-1] if same else last)
