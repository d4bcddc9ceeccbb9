"""How the time of a run grows with the batch and with the depth of a net, for each thread count.

The net is a tower of residual blocks of two 3×3 convolutions with 64 channels on 28×28 pixels. A
batch or a depth twice as large should take twice as long, and nothing more: growth is the exponent
e of a fit `milliseconds = c · sizeᵉ` (1 is linear).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fluid
from bench.compile_time import growth
from bench.support.line_chart import Line, chart
from bench.support.table import Row, goal, table
from bench.versus.race import Times
from bench.versus.runners import Runners
from bench.versus.saved import save
from tests.support.nets.layers import Net

CHANNELS, IMAGE, BLOCKS = 64, 28, 2
BATCHES = (1, 2, 4, 8, 16, 32, 64)
DEPTHS = (1, 2, 4, 8)
LIMIT = 1.05
"""Largest exponent that counts as linear: times are never exact."""

ROUNDS = 7
COLUMNS = {"threads": "d", "batch": "d", "depth": "d", "ms": ".2f", "ms ÷ (batch · depth)": ".3f"}


def measure(runners: Runners, folder: Path, rounds: int = ROUNDS) -> Iterator[dict[str, Any]]:
    """A row for every batch at depth 1 and every depth at batch 1, interleaved."""
    sizes = [*((batch, 1) for batch in BATCHES), *((1, depth) for depth in DEPTHS[1:])]
    times = {size: Times() for size in sizes}
    models = {size: str(tower_case(folder, *size)) for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            times[size].add(runners.ask("ours", saved=True, model=models[size], steps=2, warm=1))
    runners.drop()
    for (batch, depth), spent in times.items():
        ms = spent.typical(runners.threads)
        row = {"threads": runners.threads, "batch": batch, "depth": depth, "ms": ms}
        yield {**row, "ms ÷ (batch · depth)": ms / batch / depth}


def tower_case(folder: Path, batch: int, depth: int) -> Path:
    """The folder of a tower, written if it is not there."""
    place = folder / f"tower-{batch}-{depth}"
    if place.exists():
        return place
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        tower = fluid.layers.data(name="x", shape=[CHANNELS, IMAGE, IMAGE], dtype="float32")
        net = Net(fluid)
        for _ in range(BLOCKS * depth):
            long = net.conv(net.conv(tower, CHANNELS), CHANNELS, act=None)
            tower = fluid.layers.elementwise_add(tower, long, act="relu")
        test = main.clone(for_test=True)
    x = np.random.RandomState(0).rand(batch, CHANNELS, IMAGE, IMAGE).astype(np.float32)
    save(place, test, startup, {"x": x}, [tower])
    return place


def exponents(rows: Sequence[Row]) -> dict[str, float]:
    """The growth by each line of the picture."""
    return {
        line.name: growth([x for x, _ in line.points], [y for _, y in line.points])
        for line in lines(rows)
    }


def lines(rows: Sequence[Row]) -> list[Line]:
    """Milliseconds by batch and by depth, for each number of threads."""
    result: list[Line] = []
    for threads in sorted({row["threads"] for row in rows}):
        mine = [row for row in rows if row["threads"] == threads]
        for key, other in (("batch", "depth"), ("depth", "batch")):
            points = [(row[key], row["ms"]) for row in mine if row[other] == 1]
            result.append(Line(f"{key}, {threads} thread{'s' * (threads > 1)}", sorted(points)))
    return result


def report(rows: Sequence[Row]) -> str:
    """The table and whether the cost is linear."""
    growths = exponents(rows)
    goals = [goal(f"{name}: size^{e:.2f}", e <= LIMIT, f"≤ {LIMIT}") for name, e in growths.items()]
    return "\n".join([table("Time by batch and depth", rows, COLUMNS), *goals])


def picture(rows: Sequence[Row]) -> str:
    """The lines as SVG."""
    return chart("ms of a run by batch and by depth", "times the smallest", lines(rows))
