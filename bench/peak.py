"""Peak resident memory of ResNet-50: ours vs. torch, torch.compile and the reference.

Each takes a few steps in a separate process, and the kernel reports its peak memory (VmHWM):
weights, optimizer state, activations, scratch, the libraries themselves. `above import` excludes
the libraries. Ours also runs with a budget (`FLUID_MEMORY_BUDGET`), with rematerialisation.
torch.compile is measured in a second process, after one has filled its cache, so that its compiler
does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.table import Row, goal, table

ROOT = Path(__file__).resolve().parents[1]
WORKER = str(ROOT / "bench/workers/peak.py")

GOAL = 0.6
"""Maximum of training with recomputation ÷ torch eager."""

BUDGET = "60%"
STEPS = 2

COLUMNS = {"mode": "", "who": "", "peak MB": ".0f", "above import MB": ".0f", "ms a step": ".0f"}
COLUMNS |= {"peak ÷ torch": ".2f", "above ÷ torch": ".2f"}


def measure(
    who: Sequence[str], modes: Mapping[str, tuple[int, int]], reference: str | None
) -> Iterator[dict[str, Any]]:
    """A row for each mode and implementation; modes have a batch and an image size."""
    with tempfile.TemporaryDirectory() as cache:
        for mode, (batch, image) in modes.items():
            rows = [
                _row(name, mode, batch, image, reference, cache)
                for name in who
                if name != "reference" or reference
            ]
            eager = next((row for row in rows if row["who"] == "torch"), None)
            yield from (_compared(row, eager) for row in rows)


def _row(
    who: str, mode: str, batch: int, image: int, reference: str | None, cache: str
) -> dict[str, Any]:
    python = reference if who == "reference" and reference else sys.executable
    name = "ours" if who == "recomputed" else who
    command = [python, WORKER, name, mode, str(batch), str(image), str(STEPS)]
    environment = {**os.environ, **_settings(who, cache)}
    for _ in range(2 if who == "compiled" else 1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    return {
        "mode": f"{mode}, {batch} × {image}²",
        "who": who,
        "peak MB": measured["peak"] / 1e6,
        "above import MB": (measured["peak"] - measured["imported"]) / 1e6,
        "ms a step": measured["ms"],
    }


def _settings(who: str, cache: str) -> dict[str, str]:
    """One thread for each; a budget, a cache, a path where required."""
    names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FLAGS_paddle_num_threads"
    environment = dict.fromkeys(names, "1") | {"TORCHINDUCTOR_CACHE_DIR": cache}
    environment["PYTHONPATH"] = "" if who == "reference" else str(ROOT)
    return environment | ({"FLUID_MEMORY_BUDGET": BUDGET} if who == "recomputed" else {})


def _compared(row: dict[str, Any], eager: Row | None) -> dict[str, Any]:
    keys = {"peak ÷ torch": "peak MB", "above ÷ torch": "above import MB"}
    return row | {ratio: row[key] / eager[key] if eager else None for ratio, key in keys.items()}


def report(rows: Sequence[Row]) -> str:
    """The table and whether the goal is met."""
    measured = [row for row in rows if row["peak ÷ torch"] is not None]
    trained = [r for r in measured if r["who"] == "recomputed" and r["mode"].startswith("training")]
    goals = [
        goal(f"training with recomputation ÷ torch: {ratio:.2f}", ratio <= GOAL, f"≤ {GOAL}")
        for row in trained
        if (ratio := row["peak ÷ torch"])
    ]
    return "\n".join([table("Peak memory of ResNet-50", rows, COLUMNS), *goals])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    everyone = ("ours", "recomputed", "torch", "compiled", "reference")
    parser.add_argument("--who", nargs="+", default=everyone, choices=everyone)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--image", type=int, default=112)
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    options = parser.parse_args()
    modes = {"training": (options.batch, options.image), "inference": (1, 2 * options.image)}
    print(report(list(measure(options.who, modes, options.reference))))


if __name__ == "__main__":
    main()
