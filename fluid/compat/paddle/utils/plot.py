"""`paddle.utils.plot`: curves of a training, drawn by matplotlib where it is installed."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from compiler.support.settings.paddle import DISABLE_PLOT

__all__ = ["PlotData", "Ploter"]


class PlotData:
    """A curve: steps, and a value for each."""

    def __init__(self) -> None:
        self.reset()

    def append(self, step: float, value: object) -> None:
        """Add a point."""
        self.step.append(step)
        self.value.append(value)

    def reset(self) -> None:
        """Forget all points."""
        self.step: list[float] = []
        self.value: list[object] = []


class Ploter:
    """Curves by their titles, in one picture.

    Nothing is drawn where the environment variable DISABLE_PLOT is True.

    >>> curves = Ploter("train cost", "test cost")
    >>> curves.append("train cost", 1, 0.5)
    >>> curves["train cost"].value
    [0.5]
    """

    def __init__(self, *titles: str) -> None:
        self._curves = {title: PlotData() for title in titles}

    def __getitem__(self, title: str) -> PlotData:
        return self._curves[title]

    def append(self, title: str, step: float, value: object) -> None:
        """Add a point to a curve; KeyError for a title that was not given."""
        if title not in self._curves:
            titles = ", ".join(self._curves) or "none"
            raise KeyError(f"there is no curve {title!r}, there are: {titles}")
        self._curves[title].append(step, value)

    def plot(self, path: str | None = None) -> None:
        """Draw all curves that have points, into a file or, without a path, into a notebook.

        Raises ImportError where matplotlib is not installed.
        """
        if DISABLE_PLOT.text() == "True":
            return
        pyplot = _pyplot()
        drawn = {title: curve for title, curve in self._curves.items() if curve.step}
        for curve in drawn.values():
            pyplot.plot(curve.step, curve.value)
        pyplot.legend(list(drawn), loc="upper left")
        _show(pyplot) if path is None else pyplot.savefig(path)
        pyplot.gcf().clear()

    def reset(self) -> None:
        """Forget all points."""
        for curve in self._curves.values():
            curve.reset()


def _pyplot() -> ModuleType:
    try:
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        hint = "install it, or set the environment variable DISABLE_PLOT=True"
        raise ImportError(f"Ploter draws with matplotlib: {hint}") from error


def _show(pyplot: ModuleType) -> None:
    """Show the picture in the notebook that runs this, if one does."""
    display = sys.modules.get("IPython.display")
    if display is not None:
        display.clear_output(wait=True)
        display.display(pyplot.gcf())
