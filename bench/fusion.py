"""Fusion: the effect of inference passes on ops, numbers and run time.

For every model of `zoo.py`, and every one that the reference saved for the tests: ops and kernels
as written and after all passes, batch norms before and after, the largest relative difference of
any result with the passes and without those that rewrite or fuse, and the time of a run with them ÷
without, alternating. Batch-norm parameters are random, so that folding them has an effect.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
from bench.support.random_norms import draw_norms
from bench.support.table import Row, goal, table
from compiler import Options
from compiler.driver import compile_stages, feed_shapes
from compiler.ir.analysis.liveness import kernels
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.graph import Graph
from fluid.inference.predictor import Predictor
from fluid.saving.inference_model import InferenceModel, read_inference_model
from tests.support.nets import zoo
from tests.support.nets.timed import Recorded, fed

LIMIT = 1e-4
"""Maximum relative difference of any result."""

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "inference"

REWRITES = frozenset(
    "remove_dropout remove_identities fuse_batch_norm split_batch_norm fold_constants"
    " merge_transposes merge_reshapes merge_common eliminate_dead fuse_pointwise"
    " fuse_epilogue".split()
)
"""The passes that are switched on and off; memory is planned in either case."""

COLUMNS = {"model": "", "ops": "", "kernels": "", "batch norms": "", "moved": ".1e"}
COLUMNS |= {"run ms": ".2f", "fused ÷ not": ".2f"}


@dataclass(frozen=True)
class Subject:
    """A model as it was saved, and a batch for it."""

    name: str
    model: InferenceModel
    feed: Mapping[str, Any]

    def graph(self, constant: bool) -> Graph:
        """The model's graph as written; with constant state (`constant`), after all passes."""
        feed = [var.name for var in self.model.feeds]
        fetch = [var.name for var in self.model.fetches]
        if not constant:
            return to_graph(self.model.program, _shapes(self), fetch)
        params = {name: tensor.array for name, tensor in self.model.params.items()}
        return compile_stages(self.model.program, feed=feed, fetch=fetch, params=params).graph

    def predictor(self, options: Options | None = None) -> Predictor:
        """A predictor of the model."""
        return Predictor(self.model, options=options)


def _shapes(subject: Subject) -> Mapping[str, Any]:
    return feed_shapes(subject.model.program, [var.name for var in subject.model.feeds])


# ---- subjects ----------------------------------------------------------------------------------


def saved(folder: Path = GOLDEN) -> Iterator[Subject]:
    """The models of the reference, each with its recorded feed."""
    for path in sorted(folder.glob("*__separate")):
        case = path.name.removesuffix("__separate")
        with np.load(folder / f"{case}__io.npz") as io:
            arrays = {name: io[name] for name in io.files}
        feed = {n[3:]: _recorded(n, arrays) for n in arrays if n.startswith("in.")}
        yield Subject(f"{case} (1.8.5)", read_inference_model(str(path)), feed)


def _recorded(name: str, arrays: Mapping[str, Any]) -> Any:
    lengths = arrays.get(f"lod:{name}")
    if lengths is None:
        return arrays[name]
    return fluid.create_lod_tensor(arrays[name], [lengths.tolist()], fluid.CPUPlace())


def recorded(name: str, batch: int, **settings: Any) -> Subject:
    """A model of the zoo with random batch norms, saved and loaded."""
    network = zoo.build(fluid, name, train=False, **settings)
    random = np.random.RandomState(0)
    drawn = zoo.draw(name, random, batch, **settings)
    needed = _needed(network)
    feed = {n: value for n, value in fed(fluid, drawn).items() if n in needed}
    with fluid.scope_guard(fluid.Scope()), tempfile.TemporaryDirectory() as folder:
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(network.startup)
        draw_norms(network.test, random)
        fluid.io.save_inference_model(folder, list(feed), [network.output], exe, network.test)
        return Subject(name, read_inference_model(folder), feed)


def _needed(found: Recorded) -> set[str]:
    """The names that a model's output depends on."""
    needed = {found.output.name}
    for op in reversed(found.test.global_block().ops):
        if needed.intersection(op.output_arg_names):
            needed.update(op.input_arg_names)
    return needed


# ---- measuring ---------------------------------------------------------------------------------


def measure(subjects: Sequence[Subject], repeats: int = 5) -> Iterator[dict[str, Any]]:
    """A row for each model."""
    for subject in subjects:
        written, after = subject.graph(constant=False), subject.graph(constant=True)
        fused = subject.predictor()
        plain = subject.predictor(Options(disable=REWRITES))
        yield {
            "model": subject.name,
            "ops": f"{len(written)} → {len(after)}",
            "kernels": f"{len(kernels(written))} → {len(kernels(after))}",
            "batch norms": f"{norms(written)} → {norms(after)}",
            "moved": moved(fused.run(subject.feed), plain.run(subject.feed)),
            **_times(fused, plain, subject.feed, repeats),
        }


def norms(graph: Graph) -> int:
    """How many batch norms a graph has."""
    return Counter(op.kind for op in graph.ops())["batch_norm"]


def moved(results: Sequence[Any], others: Sequence[Any]) -> float:
    """The largest difference of any result, relative to the largest number in it."""
    pairs = [
        (np.asarray(a, float), np.asarray(b, float)) for a, b in zip(results, others, strict=True)
    ]
    return max(float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1.0)) for a, b in pairs)


def _times(
    fused: Predictor, plain: Predictor, feed: Mapping[str, Any], repeats: int
) -> dict[str, float]:
    """Milliseconds of the fastest fused run, and its ratio to the fastest unfused run."""
    turns = [(_spent(fused, feed), _spent(plain, feed)) for _ in range(repeats)]
    mine, other = (min(times) for times in zip(*turns, strict=True))
    return {"run ms": mine, "fused ÷ not": mine / other}


def _spent(predictor: Predictor, feed: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    predictor.run(feed)
    return (time.perf_counter() - start) * 1e3


# ---- output ------------------------------------------------------------------------------------


def report(rows: Sequence[Row]) -> str:
    """A table, and whether the goal is met."""
    worst = max(rows, key=lambda row: row["moved"])
    text = f"{worst['moved']:.1e} moved at most, in {worst['model']}"
    lines = [table("Inference, as written → after all passes", rows, COLUMNS)]
    return "\n".join([*lines, goal(text, worst["moved"] <= LIMIT, f"≤ {LIMIT:.0e}")])


def settings_of(name: str, image: int, width: float) -> dict[str, Any]:
    """Settings of a model: image size and width as requested, if it has any."""
    asked = {"image": image, "width": width}
    return {key: asked.get(key, value) for key, value in zoo.small(name).items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(zoo.MODELS), choices=zoo.MODELS)
    parser.add_argument("--image", type=int, default=64, help="pixels a side")
    parser.add_argument("--width", type=float, default=0.25, help="a factor of all channels")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    settings = {name: settings_of(name, options.image, options.width) for name in options.models}
    mine = [recorded(name, options.batch, **settings[name]) for name in options.models]
    print(report(list(measure([*saved(), *mine], options.repeats))))


if __name__ == "__main__":
    main()
