"""ResNet-50 on a CPU in float32, bfloat16 and int8: times and errors of our code.

    python bench/narrow.py
    python bench/narrow.py --image 224 --seconds 10

Batch 1 and one thread; CPU time of the thread, in interleaved rounds, of which the ratio to float32
is the median. The error is that of the logits to float32's, relative to the largest. The int8 model
is frozen as by the passes of Paddle 1.8.5, with a scale for each filter.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("CPU_NUM", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import fluid
from bench.support.differences import difference
from bench.support.table import Row, table
from bench.versus.saved import Case, zoo_case
from compiler.codegen.native.host import host_machine
from fluid.inference.predictor import Predictor
from tests.support.quantized import quantize

DTYPES = ("fp32", "bf16", "int8")
COLUMNS = {"dtype": "", "milliseconds": ".2f", "fp32 ÷ it": ".2f", "error": ".1e"}


def rows(case: Case, seconds: float) -> Iterator[Row]:
    """A row for each element type."""
    with np.load(case.folder / "feed.npz") as arrays:
        feed = {name.removeprefix("in."): arrays[name] for name in arrays.files}
    quantize(case.folder / "model", case.folder / "int8", feed)
    predictors = {dtype: _predictor(case, dtype) for dtype in DTYPES}
    outputs = {name: [np.array(predictor.run(feed)[0])] for name, predictor in predictors.items()}
    times = _times(predictors, feed, seconds)
    wide = np.array(times["fp32"])
    for dtype, taken in times.items():
        yield {
            "dtype": dtype, "milliseconds": min(taken) * 1e3,
            "fp32 ÷ it": float(np.median(wide / taken)),
            "error": difference(outputs[dtype], outputs["fp32"]),
        }  # fmt: skip


def _predictor(case: Case, dtype: str) -> Predictor:
    if dtype == "int8":
        return fluid.create_predictor(str(case.folder / "int8"), params_filename="params")
    folder = str(case.folder / "model")
    return fluid.create_predictor(folder, params_filename="params", dtype=dtype)


def _times(
    predictors: Mapping[str, Predictor], feed: Mapping[str, np.ndarray], seconds: float
) -> dict[str, list[float]]:
    """The CPU times of rounds in which each predictor runs once."""
    times: dict[str, list[float]] = {name: [] for name in predictors}
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        for name, predictor in predictors.items():
            start = time.thread_time()
            predictor.run(dict(feed))
            times[name].append(time.thread_time() - start)
    return times


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", type=int, default=224, help="pixels of an edge")
    parser.add_argument("--seconds", type=float, default=5.0, help="of rounds (%(default)s)")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="narrow-") as folder:
        case = zoo_case(Path(folder, "resnet50"), "resnet50", 1, image=options.image, classes=1000)
        found_rows = list(rows(case, options.seconds))
    print(table(f"ResNet-50, batch 1, one thread, {host_machine().name}", found_rows, COLUMNS))


if __name__ == "__main__":
    main()
