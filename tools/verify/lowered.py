"""Coverage of device kernels over the ops recorded from Paddle 1.8.5.

    python tools/verify/lowered.py

Every recorded case is compiled for a device, including its gradients. Cases with a host fallback
are listed with the reasons that the compiler reports.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.support.table import goal
from compiler.driver import compile_stages
from tests.golden.recorded import CASES, recorded

WANTED = 400
"""Of 433 cases."""


def measure(cases: Iterable[Any] = CASES) -> Iterator[tuple[str, list[str]]]:
    """Each case, and its reasons for host fallback; empty if there is none."""
    for kind, name, case in cases:
        recorded_case = recorded(kind, case)
        fetched = [*recorded_case.outputs, *recorded_case.gradients]
        fed = shapes(recorded_case.feed)
        stages = compile_stages(recorded_case.program, feed=fed, fetch=fetched, target="triton")
        missed = [note for note in stages.context.missed if note.name == "assign_targets"]
        yield name, [note.reason for note in missed]


def shapes(feed: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of feeds, including LoD offsets."""
    shapes_by_name = {name: np.asarray(value).shape for name, value in feed.items()}
    for name, value in feed.items():
        levels = [] if isinstance(value, np.ndarray) else value.lod()
        shapes_by_name |= {f"{name}@LOD{i}": (len(offsets),) for i, offsets in enumerate(levels)}
    return shapes_by_name


def main() -> None:
    """Print how many cases are lowered, and why the others are not."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    reasons_by_case = dict(measure())
    whole = sum(not reasons for reasons in reasons_by_case.values())
    print(
        goal(
            f"{whole} of {len(reasons_by_case)} cases run in kernels alone",
            whole >= WANTED,
            f"{WANTED}",
        )
    )
    for name, reasons in reasons_by_case.items():
        for reason in dict.fromkeys(reasons):
            print(f"    {name}: {reason}")


if __name__ == "__main__":
    main()
