"""Takes the training step of `networks.py` in float64, by the reference implementations of the ops.

The request is that of `tools/verify/workers/networks.py`. Ops run one by one on the graph as
written; an array is dropped after its last reader.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import fluid
from bench.versus.precision import wide
from compiler import interpret
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.graph import Op, Var
from compiler.passes.base import Context
from compiler.passes.memory.insert_deletes import InsertDeletes
from fluid.running.feeds import feed_arrays
from tests.support.nets import full, timed
from tools.verify.workers.networks import fetched_names, read, unpacked

Arrays = Mapping[str, np.ndarray]


def step(entry: Any, state: Arrays, feed: Arrays) -> dict[str, np.ndarray]:
    """The results of one training step in float64: those of `networks.step`, by the same names."""
    recorded = full.record(fluid, entry)
    names = fetched_names(fluid, recorded)
    fed = feed_arrays(recorded.main, timed.fed(fluid, unpacked(feed)))
    feeds = {name: wide(np.asarray(array)) for name, array in fed.items()}
    graph = to_graph(
        recorded.main, {name: array.shape for name, array in feeds.items()}, list(names)
    )
    InsertDeletes().run(graph, Context())
    after = {name: wide(array) for name, array in state.items()}
    results = interpret.run(graph, feeds, after, _in_double)
    arrays = dict(zip([var.name for var in graph.results], results, strict=True))
    return after | {key: arrays[name] for name, key in names.items()}


def _in_double(op: Op, results: list[tuple[Var, np.ndarray]]) -> list[tuple[Var, np.ndarray]]:
    """The results of an op in float64, which casts and constants do not have."""
    return [(var, wide(array)) for var, array in results]


def answer(request: Mapping[str, Any]) -> None:
    """Write the file that is asked for."""
    entry, folder = full.network(request["network"], request["quick"]), Path(request["folder"])
    results = step(entry, read(folder / "state.npz"), read(folder / "feed.npz"))
    np.savez(request["out"], **results)


if __name__ == "__main__":
    answer(json.loads(sys.argv[1]))
