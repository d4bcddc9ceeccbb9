"""The tables of `cpu.py` as text, JSON and a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.support.lines import machine
from bench.support.table import Row, goal, table
from bench.versus import growth, precision, starts

PEERS = ("onnxruntime", "onnx", "paddle2onnx", "llvmlite")
"""Packages whose versions matter here, besides those of `machine`."""

COLUMNS = {"row": "", "threads": "d", "peer": "", "ours ms": ".3f", "its ms": ".3f"}
COLUMNS |= {
    "ours ÷ its": ".2f",
    "goal": ".2f",
    "": "",
    "difference": ".1e",
    "rounds": "d",
    "load": ".1f",
}

Results = Mapping[str, Any]
"""Rows by table: `rows`, `precision`, `compile`, `starts`, `growth`; and what was left out."""


def versions() -> dict[str, Any]:
    """The machine and the versions of all that take part."""
    return {**machine(), **{name: _version(name) for name in PEERS}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def lines(row: Row) -> list[dict[str, Any]]:
    """A line of the table for each peer that ran; one for ours alone if none did."""
    mine = {"row": row["row"], "threads": row["threads"], "rounds": row["rounds"]}
    mine["load"] = row["load"]
    mine |= {"ours ms": row["ms"]["ours"]}
    return [
        {**mine, "peer": name, "its ms": row["ms"][name], **_judged(row, name)}
        for name in row["ratios"]
    ] or [{**mine, "peer": "–", "": ""}]


def _judged(row: Row, name: str) -> dict[str, Any]:
    ratio, wanted = row["ratios"][name], row["goals"].get(name)
    word = "" if wanted is None else "met" if ratio <= wanted else "MISSED"
    difference = row.get("differences", {}).get(name)
    return {"ours ÷ its": ratio, "goal": wanted, "": word, "difference": difference}


def reasons(rows: Sequence[Row]) -> list[str]:
    """What could not run, or should not be believed, each once."""
    reasons_seen: dict[str, None] = {}
    for row in rows:
        for name, why in row.get("notes", {}).items():
            reasons_seen[f"{row['row']}, {name}: {why}"] = None
        if row.get("agrees") is False:
            reasons_seen[f"{row['row']}: outputs differ, so times say nothing"] = None
        if "why" in row:
            reasons_seen[f"{row['row']}, {row['threads']} threads: {row['why']}"] = None
    return list(reasons_seen)


def shown(rows: Sequence[Row]) -> str:
    """The table of all rows, the reasons below it, and how many goals are met."""
    ratios = [line for row in rows if "ms" in row for line in lines(row)]
    judged = [line for line in ratios if line.get("goal") is not None]
    met = sum(line[""] == "met" for line in judged)
    return "\n".join([
        table("Ours ÷ peers", [{"": "", **line} for line in ratios], COLUMNS),
        *(f"  {reason}" for reason in reasons(rows)),
        goal(f"{met} of {len(judged)} ratios", met == len(judged), "all"),
    ])  # fmt: skip


def report(results: Results) -> str:
    """Every table that was measured, as text."""
    parts = [shown(results["rows"])] if results["rows"] else []
    if results["precision"]:
        parts.append(precision.report(results["precision"]))
    if results["compile"]:
        parts.append(starts.report(results["compile"], results["starts"]))
    if results["growth"]:
        parts.append(growth.report(results["growth"]))
    return "\n\n".join([*parts, *results.get("left out", ())])


def write(results: Results, path: Path) -> None:
    """The results as JSON, and beside them a page and a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")
    page = [
        f"# CPU, target {results['target']}",
        "",
        ", ".join(f"{name} {value}" for name, value in results["machine"].items()),
        "",
        "```",
        report(results),
        "```",
    ]
    if results["growth"]:
        drawn = path.with_suffix(".svg")
        drawn.write_text(growth.picture(results["growth"]), encoding="utf-8")
        page += ["", f"![time by batch and depth]({drawn.name})"]
    path.with_suffix(".md").write_text("\n".join(page) + "\n", encoding="utf-8")
