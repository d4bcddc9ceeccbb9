"""`layers.device.get_places` and `paddle.utils.plot`, which scripts of the Paddle book import."""

import sys
from types import ModuleType
from typing import Any

import pytest

import fluid
from fluid.compat.paddle.utils import plot
from fluid.layers.device import get_places


def test_get_places() -> None:
    assert get_places(2, "CPU") == [fluid.CPUPlace()] * 2
    assert get_places(device_count=1) == [fluid.CPUPlace()]
    assert get_places(2, "CUDA") == [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    with pytest.raises(ValueError, match="device_type is 'TPU'"):
        get_places(1, "TPU")


class Drawn(ModuleType):
    """A fake `matplotlib.pyplot` that records calls."""

    def __init__(self) -> None:
        super().__init__("matplotlib.pyplot")
        self.calls: list[Any] = []

    def gcf(self) -> "Drawn":
        return self

    def clear(self) -> None:
        self.calls.append("clear")

    def plot(self, *given: Any) -> None:
        self.calls.append(given)

    def legend(self, titles: Any, loc: str) -> None:
        self.calls.append(titles)

    def savefig(self, path: str) -> None:
        self.calls.append(path)


def test_plot_writes_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn()
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", drawn)
    curves = plot.Ploter("train", "test")
    curves.append("train", 1, 0.5)
    curves.append("train", 2, 0.25)
    curves.plot("a.png")
    assert drawn.calls == [([1, 2], [0.5, 0.25]), ["train"], "a.png", "clear"]
    curves.reset()
    assert curves["train"].step == []
    with pytest.raises(KeyError, match="no curve 'cost', there are: train, test"):
        curves.append("cost", 1, 0.5)


def test_curves_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"install it, or set .* DISABLE_PLOT=True"):
        plot.Ploter("train").plot()
    monkeypatch.setenv("DISABLE_PLOT", "True")
    plot.Ploter("train").plot()
