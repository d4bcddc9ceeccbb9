"""Programs created, run and dropped repeatedly, to find memory leaks.

Each round creates a program of another kind and other sizes, runs it in a new scope and executor,
and drops all of it. Memory after the rounds is compared with that after a warm-up: what grows with
the number of programs is a leak.
"""

from __future__ import annotations

import argparse
import gc
import linecache
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fluid

WARM_UP = 600
"""Programs before the first reading: caches of Python fill, and the allocator's heap is in use."""

SPARE = 4 << 20
"""Allowed growth of resident bytes: Python's allocator takes arenas of 1 MiB, and its heap
settles after some 2,000 programs.
"""

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Reading:
    """Memory of the process: resident bytes, objects that the collector tracks, blocks of the
    allocator (including strings and numbers), and entries of `linecache`.
    """

    rss: int
    objects: int
    blocks: int
    sources: int

    @staticmethod
    def now() -> Reading:
        """The reading after a full collection."""
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE
        objects = len(gc.get_objects())
        return Reading(resident, objects, sys.getallocatedblocks(), len(linecache.cache))

    def grown(self, before: Reading, count: int) -> list[str]:
        """The readings that grew with the number of programs; one per two programs is noise."""
        names = ("objects", "blocks", "sources")
        return [n for n in names if getattr(self, n) - getattr(before, n) > count // 2]


def predict(number: int) -> None:
    """Two layers, one prediction."""
    image = fluid.layers.data(name="x", shape=[4], dtype="float32")
    hidden = fluid.layers.fc(image, size=3 + number % 5, act="relu")
    scores = fluid.layers.scale(hidden, scale=float(number))
    _run({"x": np.ones((2, 4), "float32")}, scores)


def train(number: int) -> None:
    """One step of a regression."""
    x = fluid.layers.data(name="x", shape=[4], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="float32")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, size=1), y))
    fluid.optimizer.SGD(learning_rate=0.01 / (1 + number)).minimize(loss)
    _run({"x": np.ones((2, 4), "float32"), "y": np.ones((2, 1), "float32")}, loss)


def loop(number: int) -> None:
    """A `while` of three iterations."""
    index = fluid.layers.fill_constant([1], "int64", 0)
    limit = fluid.layers.fill_constant([1], "int64", 3 + number % 7)
    running = fluid.layers.less_than(index, limit)
    block = fluid.layers.While(running)
    with block.block():
        fluid.layers.increment(index, value=1, in_place=True)
        fluid.layers.less_than(index, limit, cond=running)
    _run({}, index)


def call_python(number: int) -> None:
    """A program that calls a Python function."""
    x = fluid.layers.data(name="x", shape=[4], dtype="float32")
    out = fluid.default_main_program().current_block().create_var(
        name="out", shape=[-1, 4], dtype="float32"
    )  # fmt: skip
    fluid.layers.py_func(lambda value: np.asarray(value) * number, x=x, out=out)
    _run({"x": np.ones((2, 4), "float32")}, out)


KINDS: tuple[Callable[[int], None], ...] = (predict, train, loop, call_python)


def one(number: int) -> None:
    """Create, run and drop the program with this number."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        KINDS[number % len(KINDS)](number)


def _run(feed: dict[str, np.ndarray], fetch: fluid.Variable) -> None:
    executor = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().blocks[0].ops:
        executor.run(fluid.default_startup_program())
    executor.run(feed=feed, fetch_list=[fetch])


def attack(count: int, warm_up: int = WARM_UP) -> tuple[Reading, Reading]:
    """Readings before and after `count` programs."""
    for number in range(warm_up):
        one(number)
    before = Reading.now()
    for number in range(warm_up, warm_up + count):
        one(number)
    return before, Reading.now()


def main(arguments: Sequence[str]) -> int:
    """Run the attack; return 1 if programs leak objects, or more than `SPARE` bytes."""
    parser = argparse.ArgumentParser(prog="attack.py programs", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, metavar="N", help="programs (2000)")
    count = parser.parse_args(arguments).count
    started = time.perf_counter()
    before, after = attack(count)
    growth = (after.rss - before.rss) / count
    print(f"{count} programs in {time.perf_counter() - started:.1f} s, after {WARM_UP} others")
    print(
        f"  resident  {before.rss / 1e6:8.2f} → {after.rss / 1e6:8.2f} MB, {growth:.0f} B a program"
    )
    for name in ("objects", "blocks", "sources"):
        print(f"  {name:9} {getattr(before, name):8d} → {getattr(after, name):8d}")
    grown = after.grown(before, count) + ["resident bytes"] * (after.rss - before.rss > SPARE)
    print(f"leaks: {', '.join(grown)}" if grown else "flat")
    return int(bool(grown))
