"""One rank of several that were started separately, with a fault if the arguments request one.

    python faulty_rank.py '{"rank": 0, "endpoints": ["127.0.0.1:7000", ...], ...}'

It prints lines of JSON: ready, the upcoming fault, and its error or its end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

from runtime.collective import Rings
from runtime.collective.engine import distributed
from runtime.errors import CollectiveError, RankError

SWAPPED = 7
"""The step in which a rank swaps two sums of one shape."""

ELEMENTS = 1 << 18
"""Float32 elements of a step's all-reduce: 1 MiB."""


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, "at": time.time(), **more}), flush=True)


class Fault:
    """A signal that this process sends itself at one point of one step."""

    def __init__(self, spec: dict[str, Any], rank: int) -> None:
        self._spec = spec if spec and spec["rank"] == rank else {}

    def at(self, when: str, step: int) -> None:
        if self._spec and self._spec["when"] == when and self._spec["step"] == step:
            say("fault")
            os.kill(os.getpid(), self._spec["signal"])


def program(variant: str) -> tuple[str, np.ndarray[Any, Any], list[str]]:
    """The schedule of a program, the array it reduces and the names, for a variant of error."""
    kind = "float64" if variant == "dtype" else "float32"
    size = ELEMENTS // 2 if variant == "size" else ELEMENTS
    names = ["b", "a"] if variant == "order" else ["a", "c" if variant == "name" else "b"]
    text = "\n".join(f"all_reduce sum {name} {kind}[{size}]" for name in names)
    return text, np.ones(size, kind), names


def ordered(names: list[str], spec: dict[str, Any], step: int) -> list[str]:
    """The names in the order of a step, which changes; the variant "swap" is wrong in one step."""
    swaps = spec.get("alternates", False) and step % 2
    if spec.get("variant") == "swap" and step == SWAPPED:
        swaps = not swaps
    return names[::-1] if swaps else names


def run(spec: dict[str, Any], rings: Rings) -> None:
    rank, endpoints = spec["rank"], spec["endpoints"]
    fault = Fault(spec.get("fault", {}), rank)
    text, array, names = program(spec.get("variant", ""))
    distributed()  # imports torch
    say("start")
    rings.create_id("id", rank, endpoints)
    rings.init_ring(0, "id", len(endpoints), rank)
    say("ready")
    if spec.get("compares", True):
        rings.check_schedule(0, text)
    first, second = np.split(array, 2)
    for step in range(spec.get("steps", 10)):
        rings.step = step
        one, other = ordered(names, spec, step)
        fault.at("before", step)
        rings.start_all_reduce(0, one, "sum", first)
        fault.at("during", step)
        rings.wait(0, one)
        rings.all_reduce(0, other, "sum", second)
        fault.at("after", step)
        if spec.get("raises") == [rank, step]:
            raise ValueError("bad record in the data of this rank")
        time.sleep(spec.get("pause", 0.0))


def main() -> None:
    spec = json.loads(sys.argv[1])
    try:
        run(spec, Rings())
    except CollectiveError as error:
        named = error.rank if isinstance(error, RankError) else -1
        say("error", type=type(error).__name__, message=str(error), rank=named)
        sys.exit(1)
    say("done")


if __name__ == "__main__":
    main()
