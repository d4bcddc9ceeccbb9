"""Profiler: times of each step of a module, from clocks in its source; spans, a table, a trace.

A module has comments that name the ops above the code of each of its steps. `Recorder.tap` returns
a module that reads the clock at each of these comments and computes the same results; without it
there is no overhead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from time import perf_counter_ns
from typing import Any

from compiler.codegen.module import Module, buffer_lifetimes
from compiler.pack import Lifetime
from compiler.plan import Buffer
from runtime.chrome_trace import Event, complete_event, counter_event, thread_name, trace_text

MARK = "mark"
"""The function that a tapped source calls with the number of the next step."""

START = -1
"""The number that a tapped source passes before its first step."""

SORTS = {"calls": "calls", "total": "total", "max": "max", "min": "min", "ave": "average"}
"""User names of the columns to sort a table by, and the field of a `Row`."""

_OP = re.compile(r"(?:.* = )?(\w+)\(.*")


@dataclass(frozen=True)
class Span:
    """A step that ran from `start` to `stop`, in nanoseconds; `ops` as in the module.

    `made` are the bytes of the arena that it uses first, `live` those that are in use while it
    runs.
    """

    ops: tuple[str, ...]
    start: int
    stop: int
    made: int = 0
    live: int = 0

    @property
    def kinds(self) -> str:
        """The types of the ops, joined if they are fused.

        >>> Span(("y = mul(x, w)  a.py:3", "z = relu(y)"), 0, 9).kinds
        'mul+relu'
        """
        return "+".join(_OP.sub(r"\1", text) for text in self.ops)


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


class Recorder:
    """The spans of all tapped modules, in the order they ended."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.passes: list[Span] = []
        """Compile times of the passes of each module, until it was tapped."""

    def clear(self) -> None:
        """Drop all recorded spans."""
        self.spans.clear()
        self.passes.clear()

    def tap(
        self, module: Module, wait: Callable[[], None] | None = None
    ) -> tuple[Module, dict[str, Callable[[int], None]]]:
        """Return an instrumented copy of a module, and the extra globals its source requires.

        `wait` is called before each reading of the clock. On a device it waits for the kernels
        launched so far; without it, spans would be the times of launches.
        """
        steps: list[tuple[str, ...]] = []
        lines = _tapped(module.source.splitlines(), steps, module.dims)
        tapped = replace(module, source="\n".join([*lines, ""]))
        self.passes += _passes(module, perf_counter_ns())
        return tapped, {MARK: self._clock(steps, module, wait)}

    def _clock(
        self, steps: list[tuple[str, ...]], module: Module, wait: Callable[[], None] | None
    ) -> Callable[..., None]:
        """Return the function a tapped module calls, with START and its sizes, then with step
        numbers.

        The last number is the number of steps.
        """
        times: list[tuple[int, int]] = []
        known: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        used: list[tuple[int, int]] = []

        def mark(number: int, *sizes: int) -> None:
            if number == START:
                times.clear()
                if sizes not in known:
                    given = dict(zip(module.dims, sizes, strict=True))
                    known[sizes] = _bytes(
                        steps, buffer_lifetimes(module.buffers, given), module.buffers
                    )
                used[:] = known[sizes]
                return
            if wait is not None:
                wait()
            times.append((number, perf_counter_ns()))
            if number == len(steps):
                for (step, start), (_, stop) in pairwise(times):
                    self.spans.append(Span(steps[step], start, stop, *used[step]))

        return mark


def _passes(module: Module, now: int) -> list[Span]:
    """The passes that compiled a module as consecutive spans, the last ending now."""
    if module.record is None:
        return []
    spent = [(name, int(each * 1e6)) for name, each in module.record.milliseconds.items()]
    first = now - sum(each for _, each in spent)
    starts = accumulate((each for _, each in spent), initial=first)
    return [
        Span((name,), start, start + each)
        for (name, each), start in zip(spent, starts, strict=False)
    ]


def _bytes(
    steps: Sequence[tuple[str, ...]], lives: Sequence[Lifetime], buffers: Sequence[Buffer]
) -> list[tuple[int, int]]:
    """For each group of ops, the bytes of the buffers that start with it and of those alive.

    A buffer is named after the first value in it, which locates its first step.
    """
    named = {each.name: life for each, life in zip(buffers, lives, strict=True)}
    found: list[tuple[int, int]] = []
    now = 0
    for ops in steps:
        begun = [named[name] for text in ops for name in _made(text) if name in named]
        now = max([now, *(life.start for life in begun)])
        alive = sum(life.size for life in lives if life.start <= now < life.stop)
        found.append((sum(life.size for life in begun), alive))
    return found


def _made(op: str) -> list[str]:
    """The output names of an op in text form.

    >>> _made("y, mask = dropout(x)  net.py:3")
    ['y', 'mask']
    """
    left, equals, _ = op.partition(" = ")
    return [name.strip() for name in left.split(",")] if equals else []


def _tapped(
    lines: Iterable[str], steps: list[tuple[str, ...]], dims: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of a module with a mark above each group of comments in its `step`.

    The ops of each group are appended to `steps`.
    """
    inside = False
    group: list[str] = []
    for line in lines:
        text = line.lstrip()
        indent = line[: len(line) - len(text)]
        if inside and text.startswith("# "):
            group.append(text[2:])
            continue
        if group and not text.startswith(("else", "elif")):
            yield f"{indent}{MARK}({len(steps)})"
            steps.append(tuple(group))
        yield from (f"{indent}# {each}" for each in group)
        group.clear()
        if inside and line.startswith("        return "):
            yield f"{indent}{MARK}({len(steps)})"
            inside = False
        yield line
        if text.startswith("def step("):
            inside = True
            yield f"{indent}    {MARK}({', '.join([str(START), *dims])})"


# ---- what is shown of spans


def rows(spans: Iterable[Span], name: Callable[[Span], str]) -> list[Row]:
    """A row for each name of spans, in the order the first of each ended."""
    times: dict[str, list[int]] = {}
    for span in spans:
        times.setdefault(name(span), []).append(span.stop - span.start)
    whole = max(sum(map(sum, times.values())), 1)
    return [_row(each, found, whole) for each, found in times.items()]


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
        f"{'Event':{wide}}" + "".join(f"{each:12}" for each in _COLUMNS),
    ]
    return "\n".join(lines + [_line(row, wide) for row in shown]) + "\n"


_COLUMNS = ("Calls", "Total", "Min.", "Max.", "Ave.", "Ratio.")


def _line(row: Row, wide: int) -> str:
    numbers = (row.total, row.min, row.max, row.average, row.ratio)
    return f"{row.name:{wide}}{row.calls:<12}" + "".join(f"{each:<12.6g}" for each in numbers)


def trace(spans: Sequence[Span], passes: Sequence[Span] = ()) -> str:
    """Format spans as a Chrome trace, which chrome://tracing and Perfetto open.

    Steps are one row, with the bytes that each uses first and those alive; the compiler passes are
    another; the bytes alive are also a counter.
    """
    events = [thread_name(0, "steps"), thread_name(1, "passes")]
    events += [_event(span, "op", 0) for span in spans]
    events += [_event(each, "pass", 1) for each in passes]
    events += [counter_event("arena", each.start, **{"bytes alive": each.live}) for each in spans]
    return trace_text(events)


def _event(span: Span, category: str, thread: int) -> Event:
    """Convert a span to an event; pass spans have no bytes."""
    args: dict[str, Any] = {"ops": list(span.ops)}
    if category == "op":
        args |= {"bytes made": span.made, "bytes alive": span.live}
    return complete_event(span.kinds, category, span.start, span.stop, thread=thread, **args)
