"""Every family of kernels on a GPU, vs. torch eager and torch.compile, and the device's limits.

    python bench/kernels.py                     # all cases, on the GPU
    python bench/kernels.py --only softmax matmul --dtypes float16
    TRITON_INTERPRET=1 python bench/kernels.py --small    # smoke test without a GPU

Times are medians of alternating rounds. A limit is a copy's bandwidth, or the throughput of torch's
matmul, both measured first; bytes are the minimum that a step must move. `worst` is the largest
difference from torch's numbers, relative to the tolerance: above 1 the result is wrong.
A case that fails leaves a row with its error; results are written after every case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from bench.device import runners
from bench.device.cases import Case, cases, draw
from bench.device.clock import ceilings, times
from bench.support.table import Row, goal, table

DTYPES = ("float32", "float16")
COLUMNS = {
    "case": "", "ms": ".3f", "eager ms": ".3f", "compiled ms": ".3f", "ours ÷ eager": ".2f",
    "ours ÷ compiled": ".2f", "of limit": ".0%", "limit": "", "worst": ".2f",
}  # fmt: skip


def measure(
    chosen: Sequence[Case], limits: Mapping[str, float], on_gpu: bool, seconds: float
) -> Iterator[Row]:
    """A row per case; torch.compile is skipped once `seconds` have passed.

    The row of a case that raises has its `error`; the others are measured all the same.
    """
    begun = time.monotonic()
    for case in chosen:
        late = time.monotonic() - begun > seconds
        try:
            row = _measured(case, limits, on_gpu, compiled=on_gpu and not late)
        except Exception as error:  # noqa: BLE001 - it may be any of three compilers'
            traceback.print_exception(error)
            row = {"case": case.title, "error": f"{type(error).__name__}: {error}"[:2000]}
        yield row


def _measured(case: Case, limits: Mapping[str, float], on_gpu: bool, compiled: bool) -> Row:
    drawn = draw(case)
    device = "cuda" if on_gpu else "cpu"
    ours, eager = runners.ours(case, drawn), runners.theirs(case, drawn, device, compiled=False)
    them = {"eager": eager}
    if compiled:
        them["compiled"] = runners.theirs(case, drawn, device, compiled=True)
    worst = _worst(case, ours, eager)
    steps = {"ours": ours.step, **{name: runner.step for name, runner in them.items()}}
    ms = times(steps, on_gpu, rounds=7 if on_gpu else 1)
    row: dict[str, Any] = {"case": case.title, "ms": ms["ours"], "worst": worst}
    for name in them:
        row |= {f"{name} ms": ms[name], f"ours ÷ {name}": ms["ours"] / ms[name]}
    moved = runners.nbytes(case, ours.results(), drawn)
    return row | {"bytes": moved, "flops": case.flops} | _reached(case, moved, ms["ours"], limits)


def _worst(case: Case, ours: runners.Runner, eager: runners.Runner) -> float:
    """The largest difference from torch's numbers, relative to the tolerance."""
    ours.step()
    eager.step()
    pairs = zip(ours.results(), eager.results(), strict=True)
    relative = 1e-3 if case.dtype == "float32" else 2e-2
    differences = [
        np.abs(a.reshape(b.shape) - b) / (case.atol * _scale(case) + relative * np.abs(b))
        for a, b in pairs
    ]
    return max(float(difference.max(initial=0)) for difference in differences)


def _scale(case: Case) -> float:
    return 10.0 if case.dtype != "float32" and not case.flops else 1.0


def _reached(case: Case, moved: int, ms: float, limits: Mapping[str, float]) -> Row:
    """The fraction of the relevant limit that a case reaches."""
    if not limits:
        return {}
    if not case.flops:
        return {"limit": "copy", "of limit": moved / ms / 1e6 / limits["copy GB/s"]}
    rate = case.flops / ms / 1e9
    return {"limit": "product", "of limit": rate / limits[f"{case.dtype} TFLOP/s"]}


def report(rows: Sequence[Row], limits: Mapping[str, float]) -> str:
    """The table, and whether numbers are right."""
    peaks = ", ".join(f"{name} {value:,.0f}" for name, value in limits.items())
    wrong = wrong_cases(rows)
    return "\n".join([
        table(f"Kernels ({peaks or 'interpreted: times are meaningless'})", rows, COLUMNS),
        goal(f"{len(wrong)} of {len(rows)} fail or differ from torch", not wrong, "0"),
        *(f"    {name}" for name in wrong),
    ])  # fmt: skip


def wrong_cases(rows: Sequence[Row]) -> list[str]:
    """The cases that raised an error, with its first line, or whose numbers differ from torch's."""
    failed = {r["case"]: ": " + r["error"].partition("\n")[0] for r in rows if "error" in r}
    differing = {r["case"]: "" for r in rows if "error" not in r and not r["worst"] <= 1}
    return [f"{name}{text}" for name, text in (failed | differing).items()]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with a word")
    command.add_argument("--dtypes", nargs="+", default=DTYPES, choices=(*DTYPES, "bfloat16"))
    command.add_argument("--small", action="store_true", help="sizes that the interpreter can do")
    command.add_argument(
        "--seconds", type=float, default=600, help="after which torch.compile is out"
    )
    command.add_argument("--json", type=Path, help="write limits and rows to this file")
    return command


def main() -> int:
    """Measure, show, write; the exit code is 1 if a case fails or its numbers are wrong."""
    options = parser().parse_args()
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not options.small:
        sys.exit("there is no GPU here: TRITON_INTERPRET=1 python bench/kernels.py --small")
    torch.backends.cudnn.allow_tf32 = False  # ours multiply float32 as it is
    chosen = [c for c in cases(options.small, options.dtypes) if _wanted(c, options.only)]
    limits, rows = ceilings(on_gpu, options.dtypes), list[Row]()
    for row in measure(chosen, limits, on_gpu, options.seconds):
        rows.append(row)
        text = f"{row['ms']:.3f} ms" if "ms" in row else row["error"]
        print(f"[{len(rows)}/{len(chosen)}] {row['case']}: {text}", file=sys.stderr)
        if options.json:
            results = {"limits": limits, "cases": len(chosen), "kernels": rows}
            write(options.json, results)
    print(report(rows, limits))
    return int(bool(wrong_cases(rows)))


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write results as JSON; a reader finds those of before or these, never a part."""
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def _wanted(case: Case, words: Sequence[str]) -> bool:
    return not words or any(word in case.title for word in words)


if __name__ == "__main__":
    sys.exit(main())
