"""`fluid.profiler`: how long each op takes, as a table and as a trace to look at.

While it is on, an Executor runs its programs with clocks between their steps. Ops that are fused
into one step have one time, under the names of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from fluid.recording.arguments import typed
from fluid.saving.files import replace_file
from runtime.profiler import SORTS, Recorder, rows, table, trace

__all__ = [
    "cuda_profiler",
    "profiler",
    "recorder",
    "reset_profiler",
    "start_profiler",
    "stop_profiler",
]

_NAMES = {
    "Default": lambda span: f"thread0::{span.kinds}",
    "OpDetail": lambda span: f"thread0::{span.kinds}",
    "AllOpDetail": lambda span: f"thread0::{' + '.join(span.ops)}",
}
"""What spans are called in the table, by `tracer_option`."""


class _State:
    """The recorder that is on, and what the table calls its spans."""

    recorder: Recorder | None = None
    tracer_option = "Default"


def recorder() -> Recorder | None:
    """What Executors record the times of steps with; None while the profiler is off."""
    return _State.recorder


@typed
def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Begin to record times, unless that has begun.

    `state` is 'CPU', 'GPU' or 'All'; all mean the same on a CPU. With `tracer_option`
    'AllOpDetail' the table has a row for every op, otherwise for every type of op. Raises
    ValueError for other words.
    """
    if state not in ("CPU", "GPU", "All"):
        raise ValueError(f"The state must be 'CPU' or 'GPU' or 'All', but received {state!r}")
    if tracer_option not in _NAMES:
        known = ", ".join(map(repr, _NAMES))
        raise ValueError(f"tracer option must be one of {known}, but received {tracer_option!r}")
    if _State.recorder is None:
        _State.recorder, _State.tracer_option = Recorder(), tracer_option


@typed
def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Print the table of what was recorded, and write it as a Chrome trace to `profile_path`.

    The table is sorted by 'calls', 'total', 'max', 'min' or 'ave'. Does nothing while the profiler
    is off; raises ValueError for another key, and records on then.
    """
    recorded = _State.recorder
    if recorded is None:
        return
    key = _as_key(sorted_key)
    _State.recorder = None
    print(table(rows(recorded.spans, _NAMES[_State.tracer_option]), "CPU", key))
    replace_file(Path(profile_path), trace(recorded.spans, recorded.passes).encode())


def reset_profiler() -> None:
    """Forget what was recorded so far."""
    if _State.recorder is not None:
        _State.recorder.clear()


@typed
@contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = "/tmp/profile",
    tracer_option: str = "Default",
) -> Iterator[None]:
    """Record within a `with` block, and show it at its end: see `start_` and `stop_profiler`."""
    _as_key(sorted_key)
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextmanager
def tracing(path: Path | None) -> Iterator[None]:
    """Write a Chrome trace of what runs in a `with` block, and of the passes that compiled it, to a
    file; nothing where there is none. Not of the reference.
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
    """Raises ValueError for an output mode that is neither 'kvp' nor 'csv', else AssertionError.

    The reference hands over to NVIDIA's profiler, where it is compiled for a GPU.
    """
    if output_mode not in (None, "kvp", "csv"):
        raise ValueError(f"The output mode must be 'kvp' or 'csv', but received {output_mode!r}")
    raise AssertionError("cuda_profiler: Not compiled with CUDA; use fluid.profiler.profiler")


def _as_key(sorted_key: str | None) -> str | None:
    """The column to sort by, None for none; ValueError where there is no such column."""
    if sorted_key not in (None, "default", *SORTS):
        known = ", ".join(map(repr, SORTS))
        raise ValueError(f"sorted_key must be None or one of {known}, but received {sorted_key!r}")
    return None if sorted_key == "default" else sorted_key
