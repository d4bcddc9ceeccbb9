"""`fluid.profiler`: per-op times, as a table and as a Chrome trace.

While it is enabled, an Executor measures each step of its programs. Ops fused into one step have
one time, under the names of all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from fluid.recording.arguments import typed
from fluid.saving.files import replace_file
from runtime.profiler import SORTS, Span, SpanRecorder, rows, table, trace

__all__ = [
    "cuda_profiler",
    "profiler",
    "recorder",
    "reset_profiler",
    "start_profiler",
    "stop_profiler",
]

_PLACES = {"CPU": "CPU", "GPU": "CUDA", "All": "All"}
"""What the table's line `Place:` says, by `state`."""


def _kinds(span: Span) -> str:
    return f"thread0::{span.kinds}"


def _ops(span: Span) -> str:
    return f"thread0::{' + '.join(span.ops)}"


_NAMES = {"Default": _kinds, "OpDetail": _kinds, "AllOpDetail": _ops}
"""Row names of spans in the table, by `tracer_option`."""


class _State:
    """The active recorder, the row names of its spans, and the place that the table names."""

    recorder: SpanRecorder | None = None
    place = "CPU"
    tracer_option = "Default"


def recorder() -> SpanRecorder | None:
    """Return the recorder that Executors use; None while the profiler is off."""
    return _State.recorder


@typed
def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Start recording times, unless already started.

    `state` is 'CPU', 'GPU' or 'All'; all record the same, and the table names it. With
    `tracer_option` 'AllOpDetail' the table has a row per op, otherwise per op type. Raises
    ValueError for other values.
    """
    if state not in _PLACES:
        raise ValueError(f"The state must be 'CPU' or 'GPU' or 'All', but received {state!r}")
    if tracer_option not in _NAMES:
        names = ", ".join(map(repr, _NAMES))
        raise ValueError(f"tracer option must be one of {names}, but received {tracer_option!r}")
    if _State.recorder is None:
        _State.recorder, _State.tracer_option = SpanRecorder(), tracer_option
        _State.place = _PLACES[state]


@typed
def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Print the table of recorded times, and write a Chrome trace to `profile_path`.

    The table is sorted by 'calls', 'total', 'max', 'min' or 'ave'. Does nothing while the profiler
    is off; raises ValueError for another key, and continues recording then.
    """
    recorded = _State.recorder
    if recorded is None:
        return
    key = _as_key(sorted_key)
    _State.recorder = None
    print(table(rows(recorded.spans, _NAMES[_State.tracer_option]), _State.place, key))
    replace_file(Path(profile_path), trace(recorded.spans, recorded.passes).encode())


def reset_profiler() -> None:
    """Discard the recorded times."""
    if _State.recorder is not None:
        _State.recorder.clear()


@typed
@contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = "/tmp/profile",
    tracer_option: str = "Default",
) -> Generator[None]:
    """Profile a `with` block: `start_profiler`, then `stop_profiler`."""
    _as_key(sorted_key)
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextmanager
def recording(recorder: SpanRecorder | None = None) -> Generator[SpanRecorder]:
    """Record times within a `with` block, apart from those of a profiler that is on.

    Not in the reference.
    """
    before, recorded = _State.recorder, recorder or SpanRecorder()
    _State.recorder = recorded
    try:
        yield recorded
    finally:
        _State.recorder = before


@contextmanager
def tracing(path: Path | None) -> Generator[None]:
    """Write a Chrome trace of a `with` block and its compiler passes to a file.

    Does nothing if `path` is None. Not in the reference.
    """
    if path is None:
        yield
        return
    start_profiler("All")
    try:
        yield
    finally:
        recorded, _State.recorder = _State.recorder, None
        if recorded is not None:
            replace_file(path, trace(recorded.spans, recorded.passes).encode())


def cuda_profiler(
    output_file: str, output_mode: str | None = None, config: list[str] | None = None
) -> NoReturn:
    """Raise ValueError for an output mode that is neither 'kvp' nor 'csv', else AssertionError.

    The reference delegates to NVIDIA's profiler, if compiled for a GPU.
    """
    if output_mode not in (None, "kvp", "csv"):
        raise ValueError(f"The output mode must be 'kvp' or 'csv', but received {output_mode!r}")
    raise AssertionError("cuda_profiler: Not compiled with CUDA; use fluid.profiler.profiler")


def _as_key(sorted_key: str | None) -> str | None:
    """Return the sort column, None for none; ValueError for an unknown one."""
    if sorted_key not in (None, "default", *SORTS):
        names = ", ".join(map(repr, SORTS))
        raise ValueError(f"sorted_key must be None or one of {names}, but received {sorted_key!r}")
    return None if sorted_key == "default" else sorted_key
