"""`SlimGraphExecutor` runs a `GraphWrapper`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.data_feeder import DataFeeder
from fluid.executor import Executor, Feeds
from fluid.recording.annotations import Feed
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["SlimGraphExecutor"]


class SlimGraphExecutor:
    """Runs graphs at a place; `exe` is its executor."""

    def __init__(self, place: Place) -> None:
        self.exe = Executor(place)
        self.place = place

    def run(
        self, graph: GraphWrapper, scope: Scope, data: Sequence[object] | None = None
    ) -> list[object]:
        """Run a graph and return the values of its `out_nodes` in order.

        `data` is a batch of samples, each with a field for each of `in_nodes` in order, or a list
        of feeds by name, one a device.
        """
        feed: Feeds | None = None
        if data is not None and isinstance(data[0], Mapping):
            feed = cast("list[Feed]", data)
        elif data is not None:
            feeder = DataFeeder(list(graph.in_nodes.values()), self.place, graph.program)
            feed = feeder.feed(cast("Sequence[Sequence[object]]", data))
        program = graph.compiled_graph or graph.program
        fetched = list(graph.out_nodes.values())
        return self.exe.run(program, feed=feed, fetch_list=fetched, scope=scope)
