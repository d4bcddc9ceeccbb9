"""Coverage of device kernels over the ops recorded from Paddle 1.8.5.

    python tools/verify/lowered.py

Every recorded case is compiled for a device, including its gradients. Cases with a host fallback
are listed with the reasons that the compiler reports.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.support.table import goal
from compiler.driver import compile_stages
from tests.golden.recorded import CASES, recorded

WANTED = 400
"""Of 433 cases."""


def measure() -> Iterator[tuple[str, list[str]]]:
    """Each case, and its reasons for host fallback; empty if there is none."""
    for kind, name, case in CASES:
        made = recorded(kind, case)
        fetched = [*made.outputs, *made.gradients]
        fed = shapes(made.feed)
        stages = compile_stages(made.program, feed=fed, fetch=fetched, target="triton")
        missed = [each for each in stages.context.missed if each.name == "assign_targets"]
        yield name, [each.reason for each in missed]


def shapes(feed: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of feeds, including LoD offsets."""
    found = {name: np.asarray(value).shape for name, value in feed.items()}
    for name, value in feed.items():
        levels = [] if isinstance(value, np.ndarray) else value.lod()
        found |= {f"{name}@LOD{i}": (len(offsets),) for i, offsets in enumerate(levels)}
    return found


def main() -> None:
    """Print how many cases are lowered, and why the others are not."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    found = dict(measure())
    whole = sum(not reasons for reasons in found.values())
    print(goal(f"{whole} of {len(found)} cases run in kernels alone", whole >= WANTED, f"{WANTED}"))
    for name, reasons in found.items():
        for reason in dict.fromkeys(reasons):
            print(f"    {name}: {reason}")


if __name__ == "__main__":
    main()
