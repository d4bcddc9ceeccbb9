"""Memory: the arena beside the sum of temporaries, the lower bound and other ways of allocating.

For models in training and inference, in bytes: what the temporaries of the program as written take
without sharing; what the buffers do after fusion and writing in place, with the scratch that ops
work in; the arena they are packed into; the bound (the largest live sum) below which no packing
goes; and the arena that values alone would need, without scratch. Beside it the same buffers under
two other policies, what a step allocates outside the arena, and how far any number moves when
memory is not reused. `--buffers DIR` also packs recorded lives of larger networks from files of
`id,lower,upper,size`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
import runtime
from bench import models
from bench.allocators import best_fit, exact_size
from bench.table import Row, goal, table
from compiler import Options
from compiler.codegen.module import lives_of
from compiler.driver import Compiled, compile_stages, feed_shapes
from compiler.ir.convert import to_graph
from compiler.ir.dims import evaluate
from compiler.ir.liveness import lives
from compiler.ir.types import Array
from compiler.pack import Life, check, pack
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import named

GOAL = 1.05
"""Arena ÷ bound, at most."""

NAMES = ("digits_mlp", "lenet_bn", "resnet_cifar8")
BATCHES = (1, 64)
STEPS = 3
"""Steps after which numbers with and without reuse are compared."""

RATIOS = {"arena ÷ bound": ".4f", "exact ÷ bound": ".3f", "best fit ÷ bound": ".3f"}
COLUMNS = {"model": "", "mode": "", "batch": "d", "temporaries": ",d", "buffers": ",d"}
COLUMNS |= {"arena": ",d", "bound": ",d", "for values": ",d", **RATIOS}
COLUMNS |= {"outside": ",d", "moved": "g"}
FILE_COLUMNS = {"file": "", "lives": "d", "buffers": ",d", "arena": ",d", "bound": ",d"}
FILE_COLUMNS |= {**RATIOS, "pack ms": ".1f"}


@dataclass(frozen=True)
class Subject:
    """A program to compile with what it is fed, what is fetched, and the state it begins with.

    `lent` is true where the state stays as it is, so that trained batch norms may be folded.
    """

    program: Any
    feed: Mapping[str, Array]
    fetch: str
    state: Mapping[str, Array]
    lent: bool

    def load(self, options: Options) -> Loaded:
        """Compiled for any batch size and loaded over a copy of the state."""
        params = {name: array.copy() for name, array in self.state.items()}
        compiled = compile_stages(
            self.program, feed=list(self.feed), fetch=[self.fetch], options=options,
            params=params if self.lent else None,
        )  # fmt: skip
        executable = runtime.load(compiled.module, runtime.CPUPlace(), params)
        return Loaded(compiled, executable, params)


@dataclass(frozen=True)
class Loaded:
    """What a subject became, over a state of its own."""

    compiled: Compiled
    executable: runtime.Executable
    state: Mapping[str, Array]

    def lives(self, batch: int, scratch: bool = True) -> list[Life]:
        """The buffers at a batch size, with or without the scratch that ops work in."""
        sizes = dict.fromkeys(self.compiled.module.dims, batch)
        buffers = (self.compiled.module if scratch else self.compiled.plan).buffers
        return lives_of(buffers, sizes)


def measure(
    names: Sequence[str] = NAMES, batches: Sequence[int] = BATCHES
) -> Iterator[dict[str, Any]]:
    """A row for each model, mode and batch size."""
    for name in names:
        recorded = models.model(fluid, name)
        state = initial_state(recorded)
        for batch in batches:
            feed = models.draw(name, np.random.RandomState(0), batch)
            training = Subject(recorded.main, feed, recorded.loss.name, state, lent=False)
            inference = Subject(recorded.test, feed, recorded.output.name, state, lent=True)
            for mode, subject in (("training", training), ("inference", inference)):
                yield {"model": name, "mode": mode, "batch": batch, **_memory(subject, batch)}


def initial_state(recorded: models.Recorded) -> dict[str, Array]:
    """The persistable arrays after the startup program, by name."""
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(recorded.startup, scope=scope)
    return {name: array.copy() for name, array in scope.arrays().items()}


def _memory(subject: Subject, batch: int) -> dict[str, Any]:
    loaded = subject.load(Options())
    shapes = {name: array.shape for name, array in subject.feed.items()}
    report = loaded.executable.memory(shapes)
    return {
        "temporaries": _temporaries(subject, batch),
        "buffers": report.sum_of_buffers,
        "arena": report.arena,
        "bound": report.bound,
        "for values": pack(loaded.lives(batch, scratch=False)).height,
        **_ratios(loaded.lives(batch), report.arena, report.bound),
        "outside": _outside(loaded.executable, subject.feed),
        "moved": _moved(subject),
    }


def _temporaries(subject: Subject, batch: int) -> int:
    """Bytes of all temporaries that the results need, of the program as it was written."""
    shapes = feed_shapes(subject.program, list(subject.feed))
    graph = to_graph(subject.program, shapes, [subject.fetch])
    run_passes(graph, named(["eliminate_dead"]), Context())
    types = [var.type for var in lives(graph)]
    return sum(evaluate(each.nbytes, dict.fromkeys(each.names, batch)) for each in types)


def _ratios(packed: Sequence[Life], arena: int, bound: int) -> dict[str, float]:
    heights = (arena, exact_size(packed), best_fit(packed))
    return {name: height / max(bound, 1) for name, height in zip(RATIOS, heights, strict=True)}


def _outside(executable: runtime.Executable, feed: Mapping[str, Array]) -> int:
    """The most bytes one step holds besides the arena, the state and the feeds."""
    executable(feed)
    tracemalloc.start()
    try:
        executable(feed)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _moved(subject: Subject) -> float:
    """The largest difference of any result or state after some steps, reuse on and off."""
    on = _numbers(subject, Options())
    off = _numbers(subject, Options(disable=frozenset({"reuse_memory"})))
    return max(float(np.max(np.abs(on[name] - off[name]), initial=0.0)) for name in on)


def _numbers(subject: Subject, options: Options) -> dict[str, Array]:
    """What each step returned and the state after the last, by name."""
    loaded = subject.load(options)
    returned = {f"step {n}": loaded.executable(subject.feed)[0] for n in range(STEPS)}
    return {**returned, **loaded.state}


# ---- recorded lives -----------------------------------------------------------------------------


def measure_files(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each file of a folder, in order of their names."""
    for path in sorted(folder.glob("*.csv")):
        recorded = _read(path)
        start = time.perf_counter()
        packing = pack(recorded)
        spent = time.perf_counter() - start
        check(recorded, packing)
        yield {
            "file": path.stem,
            "lives": len(recorded),
            "buffers": sum(life.size for life in recorded),
            "arena": packing.height,
            "bound": packing.bound,
            **_ratios(recorded, packing.height, packing.bound),
            "pack ms": spent * 1e3,
        }


def _read(path: Path) -> list[Life]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [Life(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows]


# ---- output -------------------------------------------------------------------------------------


def report(rows: Sequence[Row]) -> str:
    """The table and whether the goals are met."""
    worst = max(row["arena ÷ bound"] for row in rows)
    moved = max(row["moved"] for row in rows)
    return "\n".join([
        table("Memory, bytes", rows, COLUMNS),
        goal(f"arena ÷ bound at most {worst:.4f}", worst <= GOAL, f"≤ {GOAL}"),
        goal(f"numbers move by {moved:g} with reuse off", moved == 0.0, "0"),
    ])  # fmt: skip


def report_files(rows: Sequence[Row]) -> str:
    """The table of recorded lives."""
    return table("Recorded lives, bytes", rows, FILE_COLUMNS)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=NAMES, choices=models.MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--buffers", type=Path, help="a folder of id,lower,upper,size files")
    given = parser.parse_args()
    print(report(list(measure(given.models, given.batches))))
    if given.buffers:
        print(report_files(list(measure_files(given.buffers))))


if __name__ == "__main__":
    main()
