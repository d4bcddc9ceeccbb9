"""How far a whole model's output is from the same computed in float64.

The float64 numbers are those of the reference implementations of the ops, run one by one on the
graph as written, without passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.support.differences import difference
from bench.support.table import Row, goal, table
from bench.versus.runners import Missing, Runners
from compiler import interpret
from compiler.driver import feed_shapes
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.graph import Op, Var
from fluid.saving.inference_model import read_inference_model

LIMIT = 1e-4
COLUMNS = {"model": "", "ours": ".1e", "onnxruntime": ".1e"}


def measure(runners: Runners, title: str, folder: Path) -> dict[str, Any]:
    """A row: the relative error of our outputs and ONNX Runtime's for a net that we recorded."""
    exact = in_double(folder)
    row: dict[str, Any] = {"model": title}
    for name, who in (("ours", "fluid"), ("onnxruntime", "onnxruntime")):
        try:
            runners.ask(name, saved=True, model=str(folder), steps=1)
            with np.load(folder / f"{who}.npz") as arrays:
                row[name] = difference([arrays[key] for key in arrays.files], exact)
        except Missing as error:
            row["why"] = str(error)
    return row


def in_double(folder: Path) -> list[np.ndarray]:
    """The outputs of a case's model in float64."""
    model = read_inference_model(str(folder / "model"), params_filename="params")
    feeds = feed_shapes(model.program, [var.name for var in model.feeds])
    graph = to_graph(model.program, feeds, [var.name for var in model.fetches])
    with np.load(folder / "feed.npz") as arrays:
        feed = {key[3:]: wide(arrays[key]) for key in arrays.files}
    params = {name: wide(np.asarray(tensor.array)) for name, tensor in model.params.items()}
    return interpret.run(graph, feed, params, _expect_double)


def _expect_double(op: Op, results: list[tuple[Var, np.ndarray]]) -> list[tuple[Var, np.ndarray]]:
    """The results of an op, none of which may be of float32."""
    narrow = [var.label for var, array in results if array.dtype == np.float32]
    assert not narrow, f"{op.kind} computes {narrow} in float32"
    return results


def wide(array: np.ndarray) -> np.ndarray:
    """An array of floats in float64; others as they are."""
    return array.astype(np.float64) if array.dtype == np.float32 else array


def report(rows: Sequence[Row]) -> str:
    """The table and whether the goal is met."""
    worst = max(row.get("ours", 0.0) for row in rows)
    lines = [table("Relative error against float64", rows, COLUMNS)]
    lines += [f"  {row['model']}: {row['why']}" for row in rows if "why" in row]
    return "\n".join([*lines, goal(f"{worst:.1e} at most", worst <= LIMIT, f"≤ {LIMIT:.0e}")])
