"""One fresh process that loads a model and runs it, for `cpu.py`: its times and its peak memory.

Arguments: `fluid` or `onnxruntime` and the folder of a case, or `steps` and the name of a training
step; `once` after them leaves out all but the first run. The last line printed is JSON: seconds of
the `imports`, to `load`, and of the `first` and a `next` run, `peak` bytes, and for this package
the compilations for twice the batch.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.workers.peak import highest
from bench.workers.predictors import session
from tests.support.nets import steps

Run = Callable[[Mapping[str, Any]], object]
"""A function that runs a model on a feed."""

_RUNS = 3


def prepared(who: str, model: str) -> tuple[Run, Mapping[str, Any], Callable[[], int]]:
    """A function that runs, its feed, and one that counts compilations."""
    if who == "steps":
        return _step(model)
    with np.load(Path(model, "feed.npz")) as arrays:
        feed = {key[3:]: arrays[key] for key in arrays.files}
    if who == "onnxruntime":
        case = json.loads(Path(model, "case.json").read_text(encoding="utf-8"))
        run = session(case["onnx"], feed)
        return lambda _: run(), feed, lambda: 0
    predictor = importlib.import_module("fluid").create_predictor(
        Path(model, "model"), "__model__", "params"
    )
    return predictor.run, feed, lambda: predictor.compiles


def _step(name: str) -> tuple[Run, Mapping[str, Any], Callable[[], int]]:
    fluid = importlib.import_module("fluid")
    recorded = steps.model(fluid, name)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(recorded.startup)
    feed = next(steps.drawn(name, count=1, fluid=fluid))

    def run(given: Mapping[str, Any]) -> object:
        return executor.run(recorded.main, feed=given, fetch_list=[recorded.loss])

    return run, feed, lambda: executor.counters.compiles


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    """Load, run, and print."""
    who, model = sys.argv[1:3]
    library = "onnxruntime" if who == "onnxruntime" else "fluid"
    measured: dict[str, Any] = {"imports": _seconds(lambda: importlib.import_module(library))}
    start = time.perf_counter()
    run, feed, compilations = prepared(who, model)
    measured["load"] = time.perf_counter() - start
    measured["first"] = _seconds(lambda: run(feed))
    if "once" not in sys.argv[3:]:
        measured["next"] = min(_seconds(lambda: run(feed)) for _ in range(_RUNS))
        measured["peak"] = highest()
        if who != "onnxruntime":
            before = compilations()
            run({name: np.repeat(array, 2, axis=0) for name, array in feed.items()})
            measured["compilations"] = compilations() - before
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
