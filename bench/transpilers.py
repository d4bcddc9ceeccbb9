"""The effect of transpilers on every model of the zoo; no number may change.

For inference: how many batch norms `InferenceTranspiler` folds, how many it keeps because no layer
precedes them, how far the output moves (the largest difference over the largest value), and
milliseconds of a run before and after, alternating. Norms have random statistics, scales and
shifts, since those of an untrained one are 0 and 1.

For training: megabytes of temporaries by name in the program as recorded, after `memory_optimize`
of either level, and the peak when `release_memory` deletes; then how far the loss, the output and
every tenth gradient of some steps change by each of the three: 0 is bit for bit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
from bench.support.table import Row, goal, table
from tests.support.nets import timed, zoo

CLOSE = 1e-4
"""Tolerance of a folded model's output, relative to its largest value."""
TURNS = 15
SEED = 3
FOLDED = {"model": "", "norms": "d", "folded": "d", "left": "d", "no layer before": "d"}
FOLDED |= {"difference": ".1e", "before ms": ".2f", "after ms": ".2f", "ratio": ".2f"}
REWRITTEN = {"model": "", "ops": "d", "MB by name": ".2f", "level 0": ".2f", "level 1": ".2f"}
REWRITTEN |= {"most alive": ".2f", "deletions": "d", "moved": "g"}

Batch = Mapping[str, Any]


# ---- inference


def folded(name: str, rows: int, settings: Mapping[str, Any]) -> Row:
    """What `InferenceTranspiler` does to one model."""
    recorded = zoo.build(fluid, name, train=False, **settings)
    batch = _batch(name, rows, settings)
    exe, scope = fluid.Executor(), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(recorded.startup)
        _make_up(recorded.test, scope)
        program, transpiler = recorded.test.clone(), fluid.InferenceTranspiler()
        transpiler.transpile(program, exe.place)
        want, got = (
            _output(exe, folded_program, batch, recorded)
            for folded_program in (recorded.test, program)
        )
        before, after = _times(exe, [recorded.test, program], batch, recorded)
    report = transpiler.report
    no_layer = [refusal for refusal in report.refused if "its input comes from" in refusal.refusal]
    left = sum(op.type == "batch_norm" for op in program.global_block().ops)
    difference = float(np.abs(got - want).max() / np.abs(want).max())
    counts = {"norms": len(report.norms), "folded": len(report.fused), "left": left}
    times = {"before ms": before, "after ms": after, "ratio": after / before}
    results = {"no layer before": len(no_layer), "difference": difference}
    return {"model": name, **counts, **results, **times}


def _make_up(program: fluid.Program, scope: fluid.Scope) -> None:
    """Set random parameters of every norm."""
    random = np.random.default_rng(SEED)
    for op in program.global_block().ops:
        slots = ("Scale", "Bias", "Mean", "Variance") if op.type == "batch_norm" else ()
        for slot in slots:
            tensor = scope.find_var(op.input(slot)[0]).get_tensor()
            low, high = (0.5, 1.5) if slot in ("Scale", "Variance") else (-0.3, 0.3)
            tensor.set(
                random.uniform(low, high, tensor.shape()).astype("float32"), fluid.CPUPlace()
            )


def _output(exe: fluid.Executor, program: fluid.Program, batch: Batch, recorded: Any) -> Any:
    return np.asarray(exe.run(program, batch, [recorded.output], return_numpy=False)[0])


def _times(
    exe: fluid.Executor, programs: Sequence[fluid.Program], batch: Batch, recorded: Any
) -> list[float]:
    """Milliseconds of a run of each program, the minimum of alternating runs."""
    taken: list[list[float]] = [[] for _ in programs]
    for _ in range(TURNS):
        for times, program in zip(taken, programs, strict=True):
            start = time.perf_counter()
            _output(exe, program, batch, recorded)
            times.append((time.perf_counter() - start) * 1e3)
    return [min(times) for times in taken]


# ---- training


def rewritten(name: str, rows: int, steps: int, settings: Mapping[str, Any]) -> Row:
    """What `memory_optimize` and `release_memory` do to one model's training program."""
    recorded = zoo.build(fluid, name, **settings)
    batches = [_batch(name, rows, settings, seed) for seed in range(steps)]
    main = recorded.main
    exact, larger, deleting = main.clone(), main.clone(), main.clone()
    fluid.memory_optimize(exact)
    fluid.memory_optimize(larger, level=1)
    fluid.release_memory(deleting)
    gradients = [variable for variable in _temporaries(main, rows) if variable.endswith("@GRAD")]
    fetch = [recorded.loss, recorded.output, *gradients[::10]]
    want = _trained(main, recorded, batches, fetch)
    got = [_trained(program, recorded, batches, fetch) for program in (exact, larger, deleting)]
    sizes = {"MB by name": main, "level 0": exact, "level 1": larger}
    return {
        "model": name,
        "ops": len(main.global_block().ops),
        **{key: sum(_temporaries(program, rows).values()) / 1e6 for key, program in sizes.items()},
        "most alive": _most_alive(deleting, rows) / 1e6,
        "deletions": sum(op.type == "delete_var" for b in deleting.blocks for op in b.ops),
        "moved": max(_moved(want, result) for result in got),
    }


def _temporaries(program: fluid.Program, rows: int) -> dict[str, int]:
    """Bytes of the temporaries of the main block, for a batch of `rows` rows."""
    kind = fluid.core.VarDesc.VarType.LOD_TENSOR
    variables = program.global_block().vars.values()
    return {
        var.name: prod(rows if size == -1 else size for size in var.shape) * var.element.itemsize
        for var in variables
        if var.type == kind and not var.persistable
    }


def _most_alive(program: fluid.Program, rows: int) -> int:
    """Peak bytes between writes and deletions of variables."""
    sizes, alive, most = _temporaries(program, rows), set[str](), 0
    for op in program.global_block().ops:
        alive |= sizes.keys() & {*op.writes(), *op.reads()}
        most = max(most, sum(sizes[name] for name in alive))
        alive -= set(op.reads()) if op.type == "delete_var" else set()
    return most


def _trained(
    program: fluid.Program, recorded: Any, batches: Sequence[Batch], fetch: list[Any]
) -> list[Any]:
    exe = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        exe.run(recorded.startup)
        results = [exe.run(program, batch, fetch, return_numpy=False) for batch in batches]
    return [np.asarray(value) for step in results for value in step]


def _moved(want: Sequence[Any], got: Sequence[Any]) -> float:
    """The largest difference of any number; 0.0 if every bit is the same."""
    pairs = [(a, b) for a, b in zip(want, got, strict=True) if not np.array_equal(a, b)]
    return max((float(np.nanmax(np.abs(a - b))) for a, b in pairs), default=0.0)


def _batch(name: str, rows: int, settings: Mapping[str, Any], seed: int = SEED) -> Batch:
    return timed.fed(fluid, zoo.draw(name, np.random.RandomState(seed), rows, **settings))


# ---- what is printed


def measure(
    names: Sequence[str], one: Callable[[str, Mapping[str, Any]], Row], **given: Any
) -> Iterator[Row]:
    """A row for each model, with small settings by default."""
    for name in names:
        small = zoo.small(name)
        settings = {key: given.get(key) or value for key, value in small.items()}
        yield one(name, settings)


def report_folded(rows: Sequence[Row]) -> str:
    """The inference table, and whether all possible norms are folded and nothing changes."""
    worst = max(row["difference"] for row in rows)
    stay = sum(row["left"] - row["no layer before"] for row in rows)
    lines = [table("Batch norms folded for inference", rows, FOLDED)]
    lines += [goal(f"outputs move by {worst:.1e} at most", worst <= CLOSE, f"≤ {CLOSE:g}")]
    lines += [goal(f"{stay} norms with a preceding layer remain", not stay, "0")]
    return "\n".join(lines)


def report_rewritten(rows: Sequence[Row]) -> str:
    """The training table, and whether any number changes."""
    worst = max(row["moved"] for row in rows)
    lines = [table("Programs rewritten for memory", rows, REWRITTEN)]
    lines += [goal(f"numbers of training move by {worst:g}", worst == 0.0, "0, bit for bit")]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=[*zoo.MODELS], choices=zoo.MODELS)
    parser.add_argument("--rows", type=int, default=4, help="of a batch")
    parser.add_argument("--steps", type=int, default=5, help="of training")
    parser.add_argument("--image", type=int, help="image size in pixels, of image networks")
    parser.add_argument("--width", type=float, help="a factor of channels, of such networks")
    options = parser.parse_args()
    chosen = {"image": options.image, "width": options.width}
    results = measure(options.models, lambda name, s: folded(name, options.rows, s), **chosen)
    print(report_folded(list(results)), flush=True)
    results = measure(
        options.models, lambda name, s: rewritten(name, options.rows, options.steps, s), **chosen
    )
    print(report_rewritten(list(results)))


if __name__ == "__main__":
    main()
