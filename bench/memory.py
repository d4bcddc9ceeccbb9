"""Memory: the arena vs. the lower bound and other allocators, and the savings of the passes.

For models in training and inference, in bytes: the temporaries of the program as written without
sharing; the buffers after fusion and in-place writes, including scratch memory of ops; the arena
they are packed into, and the packing time; the bound (the largest live sum), a lower bound of any
packing. Next to it the same buffers under five other policies, what a step allocates outside the
arena, and how far any number changes when memory is not reused. A second table has the bound
itself: as the program was written, and after each pass. Lifetimes recorded from larger networks
follow, and with `--cases` the hard ones of MiniMalloc (`packing/files.py`).
"""

from __future__ import annotations

import argparse
import sys
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
import runtime
from bench.packing.bounds import BOUND_COLUMNS, WRITTEN, bounds, values
from bench.packing.files import (
    DATA,
    RATIOS,
    REPEATS,
    measure_cases,
    measure_files,
    packing_goals,
    planned,
    ratios,
    report_cases,
    report_files,
)
from bench.support.table import Row, goal, table
from compiler import Options
from compiler.ir.types import Array
from runtime.sizes import LOD
from tests.support.compiled_networks import Loaded, Subject, initial_state
from tests.support.nets import zoo

NAMES = tuple(zoo.MODELS)
BATCHES = (8,)
LARGE = {"image": 112, "width": 1.0}
"""Settings of networks on images nearly as large as in papers; nothing is run then."""

STEPS = 3
"""Steps after which numbers with and without reuse are compared."""

COLUMNS = {"model": "", "mode": "", "batch": "d", "temporaries": ",d", "buffers": ",d"}
COLUMNS |= {"arena": ",d", "bound": ",d", **RATIOS, "lives": "d", "plan ms": ".1f"}
COLUMNS |= {"outside": ",d", "moved": "g"}
BOUNDS = {"model": "", "mode": "", "batch": "d", **BOUND_COLUMNS}


def measure(
    names: Sequence[str] = NAMES, batches: Sequence[int] = BATCHES, large: bool = False
) -> Iterator[dict[str, Any]]:
    """A row for each model, mode and batch size; `large` ones are planned, and not run."""
    for name in names:
        settings = _settings(name, large)
        recorded = zoo.build(fluid, name, **settings)
        state = initial_state(recorded)
        for batch in batches:
            feed = fed_arrays(zoo.draw(name, np.random.RandomState(0), batch, **settings))
            training = Subject(recorded.main, feed, recorded.loss.name, state, constant=False)
            inference = Subject(recorded.test, feed, recorded.output.name, state, constant=True)
            for mode, subject in (("training", training), ("inference", inference)):
                yield {"model": name, "mode": mode, "batch": batch, **_memory(subject, not large)}


def _settings(name: str, large: bool) -> dict[str, Any]:
    small = zoo.small(name)
    return {key: LARGE.get(key, value) for key, value in small.items()} if large else small


def fed_arrays(batch: Mapping[str, Any]) -> dict[str, Array]:
    """A random batch as a module takes it: sequences include their offsets."""
    fed: dict[str, Array] = {}
    for name, value in batch.items():
        array, *lengths = value if isinstance(value, tuple) else (value,)
        fed[name] = array
        for offsets in lengths:
            fed[f"{name}{LOD}0"] = np.cumsum([0, *offsets], dtype=np.int64)
    return fed


def _memory(subject: Subject, run: bool) -> dict[str, Any]:
    loaded = subject.load(Options())
    shapes = {name: array.shape for name, array in subject.feed.items()}
    sizes = loaded.executable.sizes_for(shapes)
    packed = loaded.executable.lives(shapes)
    report = loaded.executable.memory(shapes)
    ran = _run(subject, loaded) if run else {}
    return {
        "temporaries": _temporaries(subject, sizes),
        "buffers": report.sum_of_buffers,
        "arena": report.arena,
        "bound": report.bound,
        **ratios(packed, report.arena),
        "lives": len(packed),
        "plan ms": min(planned(packed) for _ in range(REPEATS)),
        **bounds(subject.compile, sizes),
        **ran,
    }


def _temporaries(subject: Subject, sizes: Mapping[str, int]) -> int:
    """Bytes of all temporaries that the results need, in the program as written."""
    return sum(life.size for life in values(subject.compile(WRITTEN).graph, sizes))


def _run(subject: Subject, loaded: Loaded) -> dict[str, Any]:
    return {"outside": _outside(loaded.executable, subject.feed), "moved": _moved(subject)}


def _outside(executable: runtime.Executable, feed: Mapping[str, Array]) -> int:
    """Peak bytes of a step in addition to the arena, the state and the feeds."""
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
    """The results of each step and the state after the last, by name."""
    loaded = subject.load(options)
    returned = {f"step {n}": loaded.executable(subject.feed)[0] for n in range(STEPS)}
    return {**returned, **loaded.state}


# ---- output -------------------------------------------------------------------------------------


def report(rows: Sequence[Row]) -> str:
    """Both tables and whether the goals are met."""
    moved = max((row["moved"] for row in rows if "moved" in row), default=0.0)
    return "\n".join([
        table("Memory, bytes", rows, COLUMNS),
        *packing_goals(rows),
        goal(f"numbers move by {moved:g} with reuse off", moved == 0.0, "0"),
        table("The bound as each pass leaves it, bytes", rows, BOUNDS),
    ])  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--large", action="store_true", help="networks as large as in papers")
    parser.add_argument("--buffers", type=Path, default=DATA / "buffers", help="files of lives")
    parser.add_argument("--cases", action="store_true", help="also the hard cases, a minute")
    options = parser.parse_args()
    if options.models:
        print(report(list(measure(options.models, options.batches, options.large))), flush=True)
    print(report_files(list(measure_files(options.buffers))), flush=True)
    if options.cases:
        print(report_cases(list(measure_cases()), list(measure_cases(lowest=True))))


if __name__ == "__main__":
    main()
