"""Eager training steps: ours beside our static step, and beside those of Paddle 1.8.5.

Milliseconds of processor time of a step of three small networks with Adam (batches of 16), for
which recording the ops takes longer than running them. `us an op` is what the eager step takes
beyond the static one, by the ops that it records. The reference is a Python passed by `--reference`
or FLUID_REFERENCE_PYTHON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.table import Row, goal, table

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "bench" / "workers" / "eager_step.py"
MODELS = ("lenet", "deep", "recurrent")
MICROSECONDS = 20.0
"""Maximum cost of recording an op."""

COLUMNS = {"model": "", "ops": "d", "ours": ".3f", "static": ".3f", "us an op": ".1f"}
COLUMNS |= {"reference": ".3f", "ours / reference": ".2f"}


def steps(python: Sequence[str], models: Sequence[str], path: str) -> dict[str, dict[str, Any]]:
    """What the worker measures with a Python."""
    done = subprocess.run(
        [*python, *models],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def rows(models: Sequence[str], reference: str | None) -> list[Row]:
    """A row for each model."""
    ours = steps([sys.executable, str(WORKER), "--fluid", "fluid"], models, str(ROOT))
    theirs = steps([reference, str(WORKER)], models, "") if reference else {}
    return [_row(name, ours[name], theirs.get(name)) for name in models]


def _row(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> Row:
    beyond = (ours["eager"] - ours["static"]) / ours["ops"] * 1e3
    row = {"model": name, "ops": ours["ops"], "ours": ours["eager"], "static": ours["static"]}
    row |= {"us an op": beyond}
    if theirs is not None:
        row |= {"reference": theirs["eager"]}
        row |= {"ours / reference": ours["eager"] / theirs["eager"]}
    return row


def main() -> None:
    """Print the table and whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    arguments = parser.parse_args()
    measured = rows(arguments.models, arguments.reference)
    print(table("Eager training steps, milliseconds", measured, COLUMNS))
    most = max(float(row["us an op"]) for row in measured)
    print(goal(f"{most:.1f} us an op", most <= MICROSECONDS, f"<= {MICROSECONDS:.0f} us"))


if __name__ == "__main__":
    main()
