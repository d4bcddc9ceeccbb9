"""Watchers of a pipeline: times, numbered dumps, a report, and a guard of numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from compiler.errors import VerifyError
from compiler.interpret import run
from compiler.ir.dims import Size, evaluate
from compiler.ir.draw import Stage
from compiler.ir.graph import Graph
from compiler.ir.liveness import kernels, lives
from compiler.ir.text import show
from compiler.ir.types import Array, TensorType
from compiler.passes.base import Context, Pass


class Timer:
    """Milliseconds and number of ops for each pass, verification included."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self.ops: list[tuple[str, int]] = []
        self._since = 0.0

    def start(self, g: Graph, ctx: Context) -> None:
        """Count the ops there are at first."""
        self.ops = [("start", len(g))]

    def before(self, each: Pass, g: Graph) -> None:
        """Start the clock."""
        self._since = time.perf_counter()

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Stop the clock."""
        self.milliseconds[each.name] = (time.perf_counter() - self._since) * 1e3
        self.ops.append((each.name, len(g)))


class Recorder:
    """Keeps a `Stage` for every pass: what reports and tables are made of.

    `kernels` is their number at first and after each pass. What one kernel makes and uses itself
    never reaches memory and counts for no bytes.
    """

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.kernels: list[int] = []
        self.nbytes: Size = 0
        self._text = ""
        self._ops = 0
        self._refusals = 0
        self._since = 0.0

    def start(self, g: Graph, ctx: Context) -> None:
        """Keep the text of the graph as it came, and the bytes of its temporaries."""
        self._text = show(g)
        self.nbytes = _temporaries(g)
        self.kernels = [len(kernels(g))]

    def before(self, each: Pass, g: Graph) -> None:
        """Note the state a pass begins with."""
        self._ops = len(g)
        self._since = time.perf_counter()

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Note what changed."""
        spent = (time.perf_counter() - self._since) * 1e3
        before, self._text = self._text, show(g)
        new = tuple(f"{r.op}: {r.reason}" for r in ctx.refusals[self._refusals :])
        numbers = (spent, self._ops, len(g), new, _temporaries(g))
        self.stages.append(Stage(each.name, before, self._text, *numbers))
        self._refusals = len(ctx.refusals)
        self.kernels.append(len(kernels(g)))


def _temporaries(g: Graph) -> Size:
    return sum((var.type.nbytes for var in lives(g)), start=0)


class Dump:
    """Writes `00-start.ir`, `01-fuse_batch_norm.ir`, … into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def start(self, g: Graph, ctx: Context) -> None:
        """Make the folder and write the graph as it came."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write("start", g)

    def before(self, each: Pass, g: Graph) -> None:
        """Nothing to see yet."""

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Write the graph the pass left."""
        self._write(each.name, g)

    def _write(self, name: str, g: Graph) -> None:
        (self.folder / f"{self.count:02d}-{name}.ir").write_text(show(g), encoding="utf-8")
        self.count += 1


class Guard:
    """Runs the interpreter before and after each pass and stops when a number moves.

    `feed` and `params` are made up where they are not given (params also come from the context);
    unknown sizes are a small uneven number. Passes that change what a process computes, and
    programs with random ops, are not comparable and are let through.
    """

    def __init__(
        self,
        feed: Mapping[str, Array] | None = None,
        params: Mapping[str, Array] | None = None,
        tolerance: float = 1e-4,
    ) -> None:
        self.feed = feed
        self.params = params
        self.tolerance = tolerance
        self._expected: list[Array] = []
        self._ctx = Context()

    def start(self, g: Graph, ctx: Context) -> None:
        """Make feeds and state up where none are given."""
        self._ctx = ctx
        self.feed = self.feed or {var.name: made_up(var.type, i) for i, var in enumerate(g.feeds())}
        known = {**(ctx.params or {}), **(self.params or {})}
        kept = {v.name: made_up(v.type, i) for i, v in enumerate(g.params()) if v.name not in known}
        self.params = {**known, **kept}

    def before(self, each: Pass, g: Graph) -> None:
        """Compute what the graph gives now."""
        self._expected = self._numbers(g)

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        """Compare; VerifyError names the pass and the first result that moved."""
        if not each.preserves or any(op.defn.is_random for op in g.ops()):
            return
        for var, old, new in zip(g.results, self._expected, self._numbers(g), strict=False):
            if not np.allclose(old, new, rtol=self.tolerance, atol=self.tolerance, equal_nan=True):
                worst = float(np.max(np.abs(np.subtract(old, new, dtype=np.float64))))
                raise VerifyError(f"pass {each.name!r} moved {var.label!r} by up to {worst:.3g}")

    def _numbers(self, g: Graph) -> list[Array]:
        """Results, then the state the graph leaves behind."""
        params = {**(self.params or {}), **(self._ctx.params or {})}
        state = {name: np.array(array) for name, array in params.items()}
        results = run(g, self.feed or {}, state)
        return results + [state[var.name] for var in g.params() if g.overwriter(var) is not None]


def made_up(type: TensorType, seed: int, size: int = 3) -> Array:
    """Positive, all different numbers for floats; zeros for whole numbers (labels, counters)."""
    shape = tuple(evaluate(each, dict.fromkeys(type.names, size)) for each in type.shape)
    if not type.dtype.is_float:
        return np.zeros(shape, type.dtype.numpy)
    generator = np.random.default_rng(seed)
    return generator.uniform(0.1, 1.0, shape).astype(type.dtype.numpy, copy=False)
