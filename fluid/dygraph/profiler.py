"""Profiles of eager mode by gperftools, which is not used here."""

from fluid.core.native_names import (
    start_imperative_gperf_profiler as start_gperf_profiler,
)
from fluid.core.native_names import (
    stop_imperative_gperf_profiler as stop_gperf_profiler,
)

__all__ = ["start_gperf_profiler", "stop_gperf_profiler"]
