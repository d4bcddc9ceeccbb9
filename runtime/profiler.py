"""Profiler: times of each step of a module, from clocks in its source; spans, a table, a trace.

A module has comments that name the ops above the code of each of its steps. `SpanRecorder.tap`
returns a module that reads the clock at each of these comments and computes the same results;
native commands are timed by the executor that runs them. Without it there is no overhead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from time import perf_counter_ns
from typing import Any, Protocol

from compiler.codegen.module import Module, buffer_lifetimes
from compiler.pack import Lifetime
from compiler.plan import Buffer
from compiler.support.dataclass import dataclass
from runtime.chrome_trace import Event, complete_event, counter_event, thread_name, trace_text
from runtime.taps import MARK, START, Taps

SORTS = {"calls": "calls", "total": "total", "max": "max", "min": "min", "ave": "average"}
"""User names of the columns to sort a table by, and the field of a `Row`."""

_OP = re.compile(r"(?:.* = )?(\w+)\(.*")


@dataclass(frozen=True)
class Span:
    """A step that ran from `start` to `stop`, in nanoseconds; `ops` as in the module.

    `made` are the bytes of the arena that it uses first, `live` those that are in use while it
    runs. `flops` and `moved` are the operations of `native` kernels and the bytes that they read
    and write; 0 for other steps, and where only a call knows them.
    """

    ops: tuple[str, ...]
    start: int
    stop: int
    made: int = 0
    live: int = 0
    flops: int = 0
    moved: int = 0
    native: bool = False

    @property
    def kinds(self) -> str:
        """The types of the ops, joined if they are fused.

        >>> Span(("y = mul(x, w)  a.py:3", "z = relu(y)"), 0, 9).kinds
        'mul+relu'
        """
        return "+".join(_OP.sub(r"\1", text) for text in self.ops)

    @property
    def outputs(self) -> str:
        """The variables that the last op writes.

        >>> Span(("y = mul(x, w)  a.py:3", "z = relu(y)"), 0, 9).outputs
        'z'
        """
        return ", ".join(_made(self.ops[-1]))

    @property
    def line(self) -> str:
        """The user's line of the first op; empty if it is not known.

        >>> Span(("y = mul(x, w)  a.py:3", "z = relu(y)"), 0, 9).line
        'a.py:3'
        """
        return self.ops[0].rpartition(")")[2].strip()


@dataclass(frozen=True)
class Row:
    """All spans of one name, in milliseconds; `ratio` is their fraction of the total time."""

    name: str
    calls: int
    total: float
    min: float
    max: float
    ratio: float

    @property
    def average(self) -> float:
        """The mean time of a call."""
        return self.total / self.calls


class SpanRecorder:
    """The spans of all tapped modules, in the order they ended.

    With `record`, each span is passed to it and not stored.
    """

    def __init__(self, record: Callable[[Span], None] | None = None) -> None:
        self._record = record
        self.spans: list[Span] = []
        self.passes: list[Span] = []
        """Compile times of the passes of each module, until it was tapped."""

    def add(self, span: Span) -> None:
        """Record a span that has ended."""
        (self._record or self.spans.append)(span)

    def clear(self) -> None:
        """Drop all recorded spans."""
        self.spans.clear()
        self.passes.clear()

    def tap(
        self, module: Module, wait: Callable[[], None] | None = None
    ) -> tuple[Module, dict[str, StepClock]]:
        """Return an instrumented copy of a module, and the extra globals its source requires.

        `wait` is called before each reading of the clock. On a device it waits for the kernels
        launched so far; without it, spans would be the times of launches.
        """
        taps = Taps(module.source, module.dims)
        tapped = replace(module, source="\n".join([*taps.lines, ""]))
        self.passes += _passes(module, perf_counter_ns())
        return tapped, {MARK: StepClock(taps, module, self.add, wait)}


class TimedCode(Protocol):
    """Native code that can report times."""

    def timed(
        self, commands: Sequence[Any], recorder: Callable[[Sequence[str], Sequence[float]], object]
    ) -> Callable[..., None]:
        """Return the function that runs commands, and reports the nanoseconds of each."""
        ...


@dataclass(frozen=True)
class _Mark:
    """A time at which a step begins, or at which nothing that is recorded does."""

    step: int
    at: int
    flops: int = 0
    moved: int = 0
    native: bool = False


class StepClock:
    """The function that an instrumented module calls, with START and its sizes, then with the
    number of each step as it begins; the last number is the number of steps.
    """

    def __init__(
        self,
        taps: Taps,
        module: Module,
        record: Callable[[Span], None],
        wait: Callable[[], None] | None = None,
    ) -> None:
        self._wait = wait
        self._steps, self._order = taps.steps, taps.order
        self._module = module
        self._record_span = record
        self._marks: list[_Mark] = []
        self._known: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        self._used: list[tuple[int, int]] = []

    def __call__(self, number: int, *sizes: int) -> None:
        """Read the clock."""
        if number == START:
            self._marks.clear()
            self._used = self._bytes(sizes)
            return
        if self._wait is not None:
            self._wait()
        self._marks.append(_Mark(number, perf_counter_ns()))
        if number == len(self._steps):
            self._record()

    def _bytes(self, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
        if sizes not in self._known:
            size_values = dict(zip(self._module.dims, sizes, strict=True))
            lives = buffer_lifetimes(self._module.buffers, size_values)
            steps = [self._steps[number] for number in self._order]
            bytes_by_step = dict(
                zip(self._order, _bytes(steps, lives, self._module.buffers), strict=True)
            )
            self._known[sizes] = [
                bytes_by_step.get(group, (0, 0)) for group in range(len(self._steps))
            ]
        return self._known[sizes]

    def _record(self) -> None:
        """Record the spans of a run."""
        for mark, following in pairwise(self._marks):
            if mark.step != START:
                allocated, live = self._used[mark.step]
                ops, end = self._steps[mark.step], following.at
                work = (mark.flops, mark.moved, mark.native)
                self._record_span(Span(ops, mark.at, end, allocated, live, *work))

    def sequence(self, native: TimedCode, items: Sequence[Any]) -> Callable[..., None]:
        """Return the function that runs native commands, each timed by the executor.

        `items` are the commands, and in front of them the number of the step that they belong to.
        Work that only a call knows, as that of sequences, is not counted.
        """
        commands: list[Any] = []
        owners: list[_Mark] = []
        step = START
        for item in items:
            if isinstance(item, int):
                step = item
            elif item[2] > 0:
                commands.append(item)
                work = [count for count in item[3:] if isinstance(count, int)]
                flops, moved = work if len(work) == 2 else (0, 0)
                owners.append(_Mark(step, 0, flops, moved))
        return native.timed(commands, lambda _, spent: self._mark_commands(owners, spent))

    def _mark_commands(self, owners: Sequence[_Mark], spent: Sequence[float]) -> None:
        """Append the marks of commands that just ran; those of one step are one."""
        now = perf_counter_ns()
        starts = accumulate(spent, initial=now - sum(spent))
        step = START
        for owner, start in zip(owners, starts, strict=False):
            flops, moved = owner.flops, owner.moved
            if owner.step == step:
                last = self._marks.pop()
                start, flops, moved = last.at, flops + last.flops, moved + last.moved
            step = owner.step
            self._marks.append(_Mark(step, int(start), flops, moved, native=True))
        self._marks.append(_Mark(START, now))


def _passes(module: Module, now: int) -> list[Span]:
    """The passes that compiled a module as consecutive spans, the last ending now."""
    if module.record is None:
        return []
    spent = [(name, int(duration * 1e6)) for name, duration in module.record.milliseconds.items()]
    first = now - sum(duration for _, duration in spent)
    starts = accumulate((duration for _, duration in spent), initial=first)
    return [
        Span((name,), start, start + duration)
        for (name, duration), start in zip(spent, starts, strict=False)
    ]


def _bytes(
    steps: Sequence[tuple[str, ...]], lives: Sequence[Lifetime], buffers: Sequence[Buffer]
) -> list[tuple[int, int]]:
    """For each group of ops, the bytes of the buffers that start with it and of those alive.

    A buffer is named after the first value in it, which locates its first step.
    """
    named = {buffer.name: life for buffer, life in zip(buffers, lives, strict=True)}
    totals: list[tuple[int, int]] = []
    now = 0
    for ops in steps:
        begun = [named[name] for text in ops for name in _made(text) if name in named]
        now = max([now, *(life.start for life in begun)])
        alive = sum(life.size for life in lives if life.start <= now < life.stop)
        totals.append((sum(life.size for life in begun), alive))
    return totals


def _made(op: str) -> list[str]:
    """The output names of an op in text form.

    >>> _made("y, mask = dropout(x)  net.py:3")
    ['y', 'mask']
    """
    left, equals, _ = op.partition(" = ")
    return [name.strip() for name in left.split(",")] if equals else []


# ---- what is shown of spans


def rows(spans: Iterable[Span], name: Callable[[Span], str]) -> list[Row]:
    """A row for each name of spans, in the order the first of each ended."""
    times: dict[str, list[int]] = {}
    for span in spans:
        times.setdefault(name(span), []).append(span.stop - span.start)
    whole = max(sum(map(sum, times.values())), 1)
    return [_row(ops, own_spans, whole) for ops, own_spans in times.items()]


def _row(name: str, times: Sequence[int], whole: int) -> Row:
    total, least, most = sum(times) / 1e6, min(times) / 1e6, max(times) / 1e6
    return Row(name, len(times), total, least, most, sum(times) / whole)


def table(rows: Sequence[Row], place: str, key: str | None = None) -> str:
    """Format rows as text, sorted by a column in descending order, or unsorted without a `key`."""
    field = SORTS[key] if key else ""
    shown = sorted(rows, key=lambda row: getattr(row, field), reverse=True) if key else rows
    wide = max([len("Event"), *(len(row.name) for row in rows)]) + 2
    order = f"{key} time" if key in ("total", "max", "min", "ave") else key or "first end time"
    lines = [
        "------------------------->     Profiling Report     <-------------------------",
        "",
        f"Place: {place}",
        "Time unit: ms",
        f"Sorted by {order}" + " in descending order" * bool(key),
        "",
        f"{'Event':{wide}}" + "".join(f"{column:12}" for column in _COLUMNS),
    ]
    return "\n".join(lines + [_line(row, wide) for row in shown]) + "\n"


_COLUMNS = ("Calls", "Total", "Min.", "Max.", "Ave.", "Ratio.")


def _line(row: Row, wide: int) -> str:
    numbers = (row.total, row.min, row.max, row.average, row.ratio)
    return f"{row.name:{wide}}{row.calls:<12}" + "".join(f"{number:<12.6g}" for number in numbers)


def trace(spans: Sequence[Span], passes: Sequence[Span] = ()) -> str:
    """Format spans as a Chrome trace, which chrome://tracing and Perfetto open.

    Steps are one row, with the bytes that each uses first and those alive; the compiler passes are
    another; the bytes alive are also a counter.
    """
    events = [thread_name(0, "steps"), thread_name(1, "passes")]
    events += [_event(span, "op", 0) for span in spans]
    events += [_event(span, "pass", 1) for span in passes]
    events += [counter_event("arena", span.start, **{"bytes alive": span.live}) for span in spans]
    return trace_text(events)


def _event(span: Span, category: str, thread: int) -> Event:
    """Convert a span to an event; pass spans have no bytes."""
    args: dict[str, Any] = {"ops": list(span.ops)}
    if category == "op":
        args |= {"bytes made": span.made, "bytes alive": span.live}
        args |= {"flops": span.flops, "bytes moved": span.moved} if span.moved else {}
    return complete_event(span.kinds, category, span.start, span.stop, thread=thread, **args)
