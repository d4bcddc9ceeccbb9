"""Training progress: one line that is updated on a terminal, otherwise a line per epoch."""

from __future__ import annotations

import sys
import time
from dataclasses import field
from statistics import fmean
from types import TracebackType
from typing import TextIO

from compiler.support.dataclass import dataclass
from fluid.cli.terminal import CLEAR, clears_lines, fitting

EVERY = 0.1
"""Seconds between updates of the line on a terminal."""


@dataclass
class Progress:
    """Progress of training with `steps` steps of `batch` samples per epoch.

    Lines are written to stderr, apart from the program's output.
    """

    epochs: int
    steps: int
    batch: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def __enter__(self) -> Progress:
        """Start the clock."""
        self._losses: list[float] = []
        self._accuracies: list[float] = []
        self._started = self._shown = time.perf_counter()
        self._over = clears_lines(self.stream)
        return self

    def __exit__(self, kind: type | None, error: object, trace: TracebackType | None) -> None:
        """Clear the progress line."""
        self._seconds = time.perf_counter() - self._started
        self._show(CLEAR if self._over else "")

    def step(self, loss: float, accuracy: float) -> None:
        """Record the loss and the accuracy of a batch."""
        self._losses.append(loss)
        self._accuracies.append(accuracy)
        done, now = len(self._losses), time.perf_counter()
        if self._over and now - self._shown >= EVERY:
            self._shown = now
            self._show(CLEAR + fitting(self._line(now), self.stream))
        elif not self._over and done % self.steps == 0:
            self._show(self._line(now) + "\n")

    def summary(self) -> str:
        """Time, speed, and the mean loss of the first and of the last epoch."""
        first, last = fmean(self._losses[: self.steps]), fmean(self._losses[-self.steps :])
        speed = len(self._losses) * self.batch / self._seconds
        epochs = f"{self.epochs} epochs" if self.epochs > 1 else "1 epoch"
        return (
            f"{epochs} in {self._seconds:.1f} s, {speed:,.0f} images/s; "
            f"mean loss {first:.3f} → {last:.3f}"
        )

    def _line(self, now: float) -> str:
        """The progress line; loss and accuracy are means of this epoch so far."""
        done = len(self._losses)
        epoch, step = divmod(done - 1, self.steps)
        here = slice(epoch * self.steps, done)
        loss, accuracy = fmean(self._losses[here]), fmean(self._accuracies[here])
        speed = done * self.batch / (now - self._started)
        return (
            f"  epoch {epoch + 1:2d}/{self.epochs}  step {step + 1:2d}/{self.steps}  "
            f"loss {loss:.4f}  accuracy {accuracy:6.1%}  {speed:,.0f} images/s"
        )

    def _show(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
