"""Waiting times of users other than long trainings, here and on Paddle 1.8.5: imports, first runs …

Each wait is measured in alternating fresh processes, ours and the reference's; a time is the median
of the rounds, a ratio the median of the rounds' ratios. All have one thread except where a wait is
about threads: `busy threads` uses the defaults while as many processes compute concurrently as
there are cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.lines import append
from bench.support.table import Row, goal, table

ROOT = Path(__file__).resolve().parents[1]
WORKER = str(ROOT / "bench/workers/waits.py")
ROUNDS = 5
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FLAGS_paddle_num_threads")
COLUMNS = {"wait": "", "ours ms": ".2f", "1.8.5 ms": ".2f", "ours ÷ 1.8.5": ".2f", "noise": ".2f"}


@dataclass(frozen=True)
class Wait:
    """A function of the worker, the maximum ratio to the reference's time, whether all cores are
    busy with other work, and whether earlier processes' cached compilations may be used.
    """

    function: str
    goal: float
    is_busy: bool = False
    is_cached: bool = True


WAITS = {
    "import": Wait("importing", 1.0),
    "first run": Wait("first_run", 1.0, is_cached=False),
    "first run again": Wait("first_run", 1.0),
    "equal program": Wait("equal_program", 1.0),
    "new length": Wait("new_length", 1.0),
    "new batch of a Transformer": Wait("new_batch", 1.0),
    "new joined length": Wait("joined_length", 1.0),
    "nms": Wait("nms", 1.5),
    "nms of merged boxes": Wait("merged_boxes", 1.0),
    "a step of beam search": Wait("beam_search", 1.0),
    "argsort of wide rows": Wait("sorting", 1.0),
    "top_k of wide rows": Wait("selecting", 1.0),
    "scatter of repeated rows": Wait("scattering", 1.0),
    "sparse table, two devices": Wait("sparse_devices", 1.0),
    "small step, two devices": Wait("two_devices", 1.0),
    "small step, ten devices": Wait("ten_devices", 1.0),
    "deconvolution": Wait("deconvolution", 1.0),
    "deformable convolution": Wait("deformable_convolution", 1.0),
    "loss of YOLOv3": Wait("yolo_loss", 1.0),
    "boxes of images pooled": Wait("pooled_boxes", 1.0),
    "boxes proposed": Wait("proposed_boxes", 1.0),
    "boxes of several levels": Wait("boxes_of_levels", 1.0),
    "loss of CTC": Wait("ctc_loss", 1.0),
    "rows expanded": Wait("expanded_rows", 1.0),
    "convolution of trees": Wait("tree_convolution", 1.0),
    "unique ids": Wait("unique_ids", 1.0),
    "focus of similarity": Wait("similarity_focus", 1.0),
    "busy threads": Wait("small_products", 1.0, is_busy=True),
}


def measure(names: Sequence[str], reference: str | None, rounds: int = ROUNDS) -> Iterator[Row]:
    """A row for each wait, in milliseconds."""
    for name in names:
        with busy(os.cpu_count() or 1 if WAITS[name].is_busy else 0):
            pairs = [_round(WAITS[name], reference) for _ in range(rounds)]
        ours = [mine for mine, _ in pairs]
        row = {"wait": name, "ours ms": median(ours), "noise": max(ours) / min(ours)}
        if reference:
            row["1.8.5 ms"] = median(theirs for _, theirs in pairs)
            row["ours ÷ 1.8.5"] = median(mine / theirs for mine, theirs in pairs)
        yield row


def _round(wait: Wait, reference: str | None) -> tuple[float, float]:
    """Milliseconds of ours and of the reference, NaN if there is none."""
    ours = milliseconds(sys.executable, "fluid", wait)
    theirs = milliseconds(reference, "paddle.fluid", wait) if reference else float("nan")
    return ours, theirs


def milliseconds(python: str, module: str, wait: Wait) -> float:
    """The result of a fresh process. Raises RuntimeError with its last output if it failed."""
    threads = {} if wait.is_busy else dict.fromkeys(THREADS, "1")
    environment = {
        **os.environ, **threads, "PYTHONPATH": str(ROOT), "GLOG_minloglevel": "2",
        "PYTHONDONTWRITEBYTECODE": "", **({} if wait.is_cached else {"FLUID_CACHE_SIZE": "0"}),
    }  # fmt: skip
    done = subprocess.run(
        [python, WORKER, module, wait.function], env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{python} failed at {wait.function}:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes that compute until the block ends."""
    loop = [sys.executable, "-c", "while True: sum(range(10000))"]
    others = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def report(rows: Sequence[Row]) -> str:
    """The table and the goals, if there was a reference."""
    lines = [table("Waits, ms", rows, COLUMNS)]
    for row in rows:
        ratio, limit = row.get("ours ÷ 1.8.5"), WAITS[row["wait"]].goal
        if ratio is not None:
            text = f"{row['wait']}: {ratio:.2f} × the time of 1.8.5"
            lines.append(goal(text, ratio <= limit, f"≤ {limit}"))
    if not any("1.8.5 ms" in row for row in rows):
        lines.append("  the reference is skipped: give --reference or FLUID_REFERENCE_PYTHON")
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--waits", nargs="+", default=list(WAITS), choices=WAITS, metavar="WAIT",
        help=f"what to measure: {'; '.join(WAITS)} (all)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    options = parser.parse_args()
    rows = list(measure(options.waits, options.reference, options.rounds))
    print(report(rows))
    if options.json:
        append(options.json, {"waits": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
