"""`Context`: what strategies of a compression read and change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fluid.contrib.slim.graph.executor import SlimGraphExecutor
from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.optimizer import Optimizer
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["Context", "Reader", "means"]

Reader = Callable[[], Iterable[Sequence[object]]]
"""Returns the batches of an epoch, each a list of samples."""


def means(values: Sequence[object]) -> list[float]:
    """Return the mean of each fetched array."""
    return [float(np.mean(np.asarray(value, "float64"))) for value in values]


class Context:
    """The graphs, readers and results of a compression.

    `optimize_graph` is the graph that is trained, `eval_results` has a list of results, one an
    evaluation, by name of a metric.
    """

    def __init__(
        self,
        place: Place,
        scope: Scope,
        train_graph: GraphWrapper,
        train_reader: Reader | None = None,
        eval_graph: GraphWrapper | None = None,
        eval_reader: Reader | None = None,
        teacher_graphs: Sequence[GraphWrapper] = (),
        train_optimizer: Optimizer | None = None,
        distiller_optimizer: Optimizer | None = None,
        search_space: object = None,
    ) -> None:
        self.epoch = self.epoch_id = self.batch_id = 0
        self.k_v: dict[str, object] = {}
        self.place, self.scope = place, scope
        self.train_graph, self.train_reader = train_graph, train_reader
        self.eval_graph, self.eval_reader = eval_graph, eval_reader
        self.teacher_graphs = list(teacher_graphs)
        self.train_optimizer = train_optimizer
        self.distiller_optimizer = distiller_optimizer
        self.search_space = search_space
        self.optimize_graph: GraphWrapper | None = None
        self.eval_results: dict[str, list[float]] = {}
        self.skip_training = False

    def put(self, key: str, value: object) -> None:
        """Keep a value for strategies."""
        self.k_v[key] = value

    def get(self, key: str) -> object:
        """Return a value that was kept, None if there is none."""
        return self.k_v.get(key)

    def eval_converged(self, metric_name: str, delta: float = 0.001) -> bool:
        """Whether the last two results of a metric differ by less than `delta` of the first one."""
        results = self.eval_results.get(metric_name, [])[-2:]
        return len(results) == 2 and abs(results[1] - results[0]) / results[0] < delta

    def run_eval_graph(self) -> tuple[list[float], list[str]]:
        """Evaluate the model; returns means over all batches and their names."""
        assert self.eval_graph is not None, "there is no eval_program"
        assert self.eval_reader is not None, "there is no eval_reader"
        graph, executor = self.eval_graph.clone(for_test=True), SlimGraphExecutor(self.place)
        results = [means(executor.run(graph, self.scope, data)) for data in self.eval_reader()]
        assert results, "eval_reader has no batch"
        totals = [sum(values) / len(values) for values in zip(*results, strict=True)]
        return totals, list(graph.out_nodes)
