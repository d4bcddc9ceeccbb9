"""Paddle's native calls for the profiler, which `fluid.profiler` does the work of."""

from __future__ import annotations

from enum import Enum

from fluid import profiler

__all__ = [
    "EventSortingKey", "ProfilerState", "TracerOption", "disable_profiler", "enable_profiler",
    "is_profiler_enabled", "kAll", "kAllOpDetail", "kAve", "kCPU", "kCUDA", "kCalls", "kDefault",
    "kDisabled", "kMax", "kMin", "kOpDetail", "kTotal", "reset_profiler", "set_tracer_option",
]  # fmt: skip


class ProfilerState(Enum):
    """What is measured: `str` gives the name as scripts print it."""

    kDisabled = "Disabled"
    kCPU = "CPU"
    kCUDA = "GPU"
    kAll = "All"


class EventSortingKey(Enum):
    """By what the table is sorted."""

    kDefault = "default"
    kCalls = "calls"
    kTotal = "total"
    kMin = "min"
    kMax = "max"
    kAve = "ave"


class TracerOption(Enum):
    """What a row of the table is: the ops of a type, or one op."""

    kDefault = "Default"
    kOpDetail = "OpDetail"
    kAllOpDetail = "AllOpDetail"


kDisabled, kCPU, kCUDA, kAll = ProfilerState
kDefault, kCalls, kTotal, kMin, kMax, kAve = EventSortingKey
kOpDetail, kAllOpDetail = TracerOption.kOpDetail, TracerOption.kAllOpDetail


class _Chosen:
    """The tracer option of the next profile."""

    option = TracerOption.kDefault


def set_tracer_option(option: TracerOption) -> None:
    """Choose the rows of the table of the next profile."""
    _Chosen.option = option


def enable_profiler(state: ProfilerState) -> None:
    """Start to measure, unless measuring or `kDisabled`."""
    if state is not ProfilerState.kDisabled:
        profiler.start_profiler(state.value, _Chosen.option.value)


def disable_profiler(key: EventSortingKey, profile_path: str) -> None:
    """Print the table, and write the trace to a file."""
    profiler.stop_profiler(key.value, profile_path)


def is_profiler_enabled() -> bool:
    """Whether steps are measured."""
    return profiler.recorder() is not None


def reset_profiler() -> None:
    """Discard what was measured."""
    profiler.reset_profiler()
