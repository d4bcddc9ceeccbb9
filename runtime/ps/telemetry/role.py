"""The log and the trace of one server or trainer."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from compiler.support.dataclass import dataclass
from runtime.ps.settings import Settings
from runtime.ps.telemetry.logs import RoleLog, write_logs
from runtime.ps.telemetry.trace import RoleTrace


@dataclass(frozen=True)
class Telemetry:
    """The log of a role and its trace, if it has one."""

    log: RoleLog
    trace: RoleTrace | None = None

    def now(self) -> int:
        """The start time of a span; 0 without a trace."""
        return perf_counter_ns() if self.trace else 0

    def span(
        self, name: str, row: int, start: int, step: int, *, begins: str = "", ends: str = ""
    ) -> int:
        """Record a span as `RoleTrace.span` does; returns its end. Does nothing without a trace."""
        if self.trace is None:
            return 0
        return self.trace.span(name, row, start, begins=begins, ends=ends, step=step)

    def name_row(self, row: int, name: str) -> None:
        """Label a row of the trace."""
        if self.trace is not None:
            self.trace.rows[row] = name

    def write(self) -> None:
        """Write the trace, if there is one."""
        if self.trace is not None:
            self.trace.write()


def make_telemetry(
    settings: Settings, role: str, number: int, endpoint: str, step: Callable[[], int]
) -> Telemetry:
    """Create the telemetry that the settings configure; `step` returns the step of the role."""
    write_logs(settings.log)
    folder = settings.trace_dir
    trace = RoleTrace(folder, role, number, endpoint) if folder else None
    return Telemetry(RoleLog(role, number, step), trace)


def gradient_arrow(step: int, trainer: int, endpoint: str) -> str:
    """The arrow from a trainer to the server that receives its gradients."""
    return f"gradients {step} {trainer} {endpoint}"


def parameter_arrow(step: int, trainer: int, endpoint: str) -> str:
    """The arrow from a server to the trainer that receives its parameters."""
    return f"parameters {step} {trainer} {endpoint}"
