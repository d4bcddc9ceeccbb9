"""Lifetimes of larger networks, and hard ones, packed from files of `id,lower,upper,size`."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.packing.allocators import POLICIES
from bench.support.table import Row, goal, table
from compiler.pack import Lifetime, check, lower_bound, pack

DATA = Path(__file__).resolve().parents[1] / "data"
"""Recorded buffers of ten networks, and the eleven hard cases of MiniMalloc (data/README.md)."""

INFERENCE_MS = 50.0
PLAN_MS = 2_000.0
"""Maximum packing time: for inference, and for 1,500 buffers of training."""

REPEATS = 3
"""Number of packings; the fastest is reported, since other load only adds time."""

CAPACITY = 1_048_576
"""Target size of each hard case."""

CASE_SECONDS = 60.0
"""Time limit of a hard case; MiniMalloc's C++ takes up to 6.6 s on one core."""

CASE_STEPS = 10_000_000
LOWEST_STEPS = 1_000_000
"""Search steps: for a hard case, and for the lowest packing if the bound is lower."""

LOWEST_KNOWN = {"D.1048576": 1_039_360, "J.1048576": 1_029_120}
"""Results of MiniMalloc's C++, where above the bound."""

RATIOS = {"arena ÷ bound": ".4f", **{f"{name} ÷ bound": ".3f" for name in POLICIES}}
COLUMNS = {"file": "", "lives": "d", "buffers": ",d", "arena": ",d", "bound": ",d"}
COLUMNS |= {**RATIOS, "plan ms": ".1f"}
CASE_COLUMNS = {"file": "", "lives": "d", "bound": ",d", "arena": ",d", "seconds": ".2f"}
LOWEST_COLUMNS = {**CASE_COLUMNS, "MiniMalloc": ",d", "why not lower": ""}


def ratios(packed: Sequence[Lifetime], arena: int) -> dict[str, float]:
    """The arena and the result of each other policy ÷ the bound."""
    bound = max(lower_bound(packed), 1)
    heights = (arena, *(policy(packed) for policy in POLICIES.values()))
    return {name: height / bound for name, height in zip(RATIOS, heights, strict=True)}


def planned(packed: Sequence[Lifetime]) -> float:
    """Milliseconds to pack and to check."""
    start = time.perf_counter()
    check(packed, pack(packed))
    return (time.perf_counter() - start) * 1e3


def measure_files(folder: Path = DATA / "buffers") -> Iterator[dict[str, Any]]:
    """A row for each file of a folder, in order of their names."""
    for path in sorted(folder.glob("*.csv")):
        recorded = read_lives(path)
        packing = pack(recorded)
        yield {
            "file": path.stem,
            "lives": len(recorded),
            "buffers": sum(life.size for life in recorded),
            "arena": packing.height,
            "bound": packing.bound,
            **ratios(recorded, packing.height),
            "plan ms": min(planned(recorded) for _ in range(REPEATS)),
        }


def measure_cases(lowest: bool = False, folder: Path = DATA / "minimalloc") -> Iterator[Row]:
    """A row for each hard case: packed into its capacity, or as low as possible."""
    for path in sorted(folder.glob("*.csv")):
        recorded = read_lives(path)
        if lowest and path.stem not in LOWEST_KNOWN:
            continue
        effort, enough = (LOWEST_STEPS, 0) if lowest else (CASE_STEPS, CAPACITY)
        start = time.perf_counter()
        packing = pack(recorded, effort=effort, enough=enough)
        spent = time.perf_counter() - start
        check(recorded, packing)
        yield {
            "file": path.stem,
            "lives": len(recorded),
            "bound": packing.bound,
            "arena": packing.height,
            "seconds": spent,
            "MiniMalloc": LOWEST_KNOWN.get(path.stem),
            "why not lower": packing.note,
        }


def read_lives(path: Path) -> list[Lifetime]:
    """The rows of a file, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [Lifetime(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows]


# ---- output -------------------------------------------------------------------------------------


def report_files(rows: Sequence[Row]) -> str:
    """The table of recorded lives and its goals."""
    return "\n".join([table("Recorded lives, bytes", rows, COLUMNS), *packing_goals(rows)])


def packing_goals(rows: Sequence[Row]) -> list[str]:
    """Whether the arenas are at the bound, and planned in time."""
    worst = max(row["arena ÷ bound"] for row in rows)
    inference = [row["plan ms"] for row in rows if "infer" in row.get("mode", row.get("file", ""))]
    slowest, all_slowest = max(inference, default=0.0), max(row["plan ms"] for row in rows)
    return [
        goal(f"arena ÷ bound at most {worst:.4f}", worst <= 1.0, "1.000"),
        goal(f"planned in {slowest:.1f} ms for inference", slowest <= INFERENCE_MS, "≤ 50 ms"),
        goal(f"planned in {all_slowest:.0f} ms at most", all_slowest <= PLAN_MS, "≤ 2,000 ms"),
    ]


def report_cases(rows: Sequence[Row], lowest: Sequence[Row] = ()) -> str:
    """The tables of hard cases and their goals."""
    fitting = sum(row["arena"] <= CAPACITY for row in rows)
    slowest, whole = max(row["seconds"] for row in rows), sum(row["seconds"] for row in rows)
    lines = [
        table("Hard cases of MiniMalloc, units", rows, CASE_COLUMNS),
        goal(f"{fitting} of {len(rows)} fit {CAPACITY:,}", fitting == len(rows), "all"),
        goal(f"{slowest:.1f} s for one, {whole:.1f} s for all", slowest <= CASE_SECONDS, "≤ 60 s"),
    ]
    if lowest:
        met = any(row["arena"] < row["MiniMalloc"] for row in lowest)
        lines.append(table("As low as they get, units", lowest, LOWEST_COLUMNS))
        lines.append(goal("lower than MiniMalloc" if met else "not lower", met, "lower"))
    return "\n".join(lines)
