"""Random models: native code against NumPy, optimised and as written, with bounds checks.

A model is determined by its number: images, dense rows or sequences of ids of uneven sizes, two
training steps or one of inference. What is fetched, and the parameters that training leaves, must
agree to 2e-3 of the largest number of an array; with bounds checks, every bit. The exit code is 1
if one differed or a way raised an error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.support.table import goal, table
from tests.fluid.random_models import WAYS, Model, difference, outcome, recorded

REFERENCE, *OTHERS = WAYS


def main() -> int:
    """Run the requested models and print how many agreed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="(%(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first number")
    options = parser.parse_args()
    since, trained, failures = time.perf_counter(), 0, list[str]()
    for number in range(options.first, options.first + options.count):
        model = recorded(number)
        trained += model.trains
        failures += (f"model {number}, {text}" for text in differences(model))
        if number % 100 == 99:
            print(f"{number + 1} models, {len(failures)} failures", file=sys.stderr, flush=True)
    for failure in failures:
        print(failure)
    row = {"models": options.count, "trained": trained, "failures": len(failures)}
    row["seconds"] = round(time.perf_counter() - since)
    met = goal(f"{len(failures)} runs differed", not failures, "0")
    print("\n".join([table("Random models", [row], dict.fromkeys(row, ",d")), met]))
    return 1 if failures else 0


def differences(model: Model) -> Iterator[str]:
    """What differs between the ways to run a model, a line each."""
    wanted, native = outcome(model, REFERENCE), dict[str, np.ndarray]()
    for way in OTHERS:
        try:
            results = outcome(model, way)
        except ValueError as error:
            yield f"{way}: {type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        if differs := difference(results, wanted):
            yield f"{way}: {differs}"
        native = results if way == "native" else native
        if "checks" in way and any(results[n].tobytes() != native[n].tobytes() for n in native):
            yield f"{way}: some bits differ from those without"


if __name__ == "__main__":
    sys.exit(main())
