"""Log lines of servers and trainers, each with role, number and step.

FLUID_PS_LOG selects the format: `json`, one JSON object per line, or `text`; both go to stderr.
Without it the lines go only to the logger `fluid.ps`, which a program may configure by `logging`;
Python shows its warnings then.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from compiler.support.escape import json_line, one_line

LOGGER = logging.getLogger("fluid.ps")
PROGRESS_SECONDS = 10.0
"""Interval of the lines that report steps per second."""
FIELDS = "ps_fields"
"""The attribute of a log record that holds its fields."""


class RoleLog:
    """Writes the log lines of one role; `step` returns its current step."""

    def __init__(self, role: str, number: int, step: Callable[[], int]) -> None:
        self._role, self._number, self._step = role, number, step
        self._progress: tuple[float, int] | None = None

    def info(self, message: str, **fields: Any) -> None:
        """Log an event; `fields` are additional numbers and texts."""
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Log an event that needs attention."""
        self._log(logging.WARNING, message, fields)

    def progress(self, now: float, **fields: Any) -> None:
        """Log the steps per second every PROGRESS_SECONDS; `now` is of `time.monotonic`."""
        since, before = self._progress or (now, self._step())
        if self._progress is not None and now - since < PROGRESS_SECONDS:
            return
        step = self._step()
        self._progress = now, step
        if step > before:
            rate = round((step - before) / (now - since), 2)
            self.info("progress", steps_a_second=rate, **fields)

    def _log(self, level: int, message: str, fields: dict[str, Any]) -> None:
        if not LOGGER.isEnabledFor(level):
            return
        context = {"role": self._role, "number": self._number, "step": self._step()}
        text = f"{self._role} {self._number}, step {context['step']}: {message}"
        text += "".join(f" {name}={value}" for name, value in fields.items())
        about = context | {"message": message} | fields
        LOGGER.log(level, "%s", one_line(text), extra={FIELDS: about})


class JsonLines(logging.Formatter):
    """Each record as one line of JSON: time (UTC), level, role, number, step, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = getattr(record, FIELDS, None) or {"message": record.getMessage()}
        return json_line({"time": when, "level": record.levelname.lower(), **fields})


class Lines(logging.StreamHandler[Any]):
    """A handler that writes the lines of this package to stderr."""


def write_logs(form: str) -> None:
    """Write lines to stderr as `text` or `json`; an empty form changes nothing."""
    if not form or any(isinstance(existing, Lines) for existing in LOGGER.handlers):
        return
    handler = Lines(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else plain)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
