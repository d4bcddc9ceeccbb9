"""`Context`: what strategies of a compression read and change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, cast

import numpy as np

from fluid.contrib.slim.graph.executor import SlimGraphExecutor
from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.optimizer import Optimizer
from runtime.device import Place
from runtime.prefetching_reader import EOFException
from runtime.tensors.scope import Scope

__all__ = ["Context", "Reader", "means", "run_batches"]

Reader = Callable[[], Iterable[Sequence[object]]]
"""Returns the batches of an epoch, each a list of samples."""


class StartedReader(Protocol):
    """A reader whose batches programs take themselves, between `start` and EOFException."""

    def start(self) -> None:
        """Begin an epoch."""
        ...

    def reset(self) -> None:
        """End it."""
        ...


def means(values: Sequence[object]) -> list[float]:
    """Return the mean of each fetched array."""
    return [float(np.mean(np.asarray(value, "float64"))) for value in values]


def _no_result(metric_name: str, results: Iterable[str]) -> ValueError:
    return ValueError(f"metric_name {metric_name!r} is no result: there are {[*results]}")


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
        self._samples: dict[int, list[Sequence[object]]] = {}

    def put(self, key: str, value: object) -> None:
        """Keep a value for strategies."""
        self.k_v[key] = value

    def get(self, key: str) -> object:
        """Return a value that was kept, None if there is none."""
        return self.k_v.get(key)

    def latest_result(self, metric_name: str) -> float:
        """Return the last result of a metric; raise ValueError if it has none."""
        results = self.eval_results.get(metric_name)
        if not results:
            raise _no_result(metric_name, self.eval_results)
        return results[-1]

    def measured_result(
        self, metric_name: str, sampled_rate: float | None, cached_id: int
    ) -> float:
        """Evaluate the model as `run_eval_graph`; return the result of a metric.

        Raises ValueError if it is not evaluated.
        """
        results = dict(zip(*reversed(self.run_eval_graph(sampled_rate, cached_id)), strict=True))
        if metric_name not in results:
            raise _no_result(metric_name, results)
        return results[metric_name]

    def eval_converged(self, metric_name: str, delta: float = 0.001) -> bool:
        """Whether the last two results of a metric differ by less than `delta` of the first one."""
        results = self.eval_results.get(metric_name, [])[-2:]
        return len(results) == 2 and abs(results[1] - results[0]) / results[0] < delta

    def run_eval_graph(
        self, sampled_rate: float | None = None, cached_id: int = 0
    ) -> tuple[list[float], list[str]]:
        """Evaluate the model; returns means over all batches and their names.

        With `sampled_rate`, they are over the first batch and as large a random part of the others,
        the same ones for a `cached_id`.
        """
        assert self.eval_graph is not None, "there is no eval_program"
        assert self.eval_reader is not None, "there is no eval_reader"
        graph, executor = self.eval_graph.clone(for_test=True), SlimGraphExecutor(self.place)
        read = self.eval_reader
        if sampled_rate:
            sampled = self._sampled(sampled_rate, cached_id)
            read = sampled.__iter__
        results = [means(values) for values in run_batches(executor, graph, self.scope, read)]
        assert results, "eval_reader has no batch"
        totals = [sum(values) / len(values) for values in zip(*results, strict=True)]
        return totals, list(graph.out_nodes)

    def _sampled(self, rate: float, cached_id: int) -> list[Sequence[object]]:
        """Return some batches for evaluations, which are kept."""
        assert self.eval_reader is not None, "there is no eval_reader"
        if cached_id not in self._samples:
            random = np.random.RandomState(cached_id)
            self._samples[cached_id] = [
                batch
                for number, batch in enumerate(self.eval_reader())
                if number == 0 or random.uniform() < rate
            ]
        return self._samples[cached_id]


def run_batches(
    executor: SlimGraphExecutor,
    graph: GraphWrapper,
    scope: Scope,
    reader: Reader,
    before: Callable[[], None] = lambda: None,
) -> Iterator[list[object]]:
    """Run a graph on each batch of a reader, after calling `before`; yields the results.

    A reader with `start` and `reset`, such as a `py_reader` or a `DataLoader` that is not iterable,
    feeds the program itself.
    """
    if callable(getattr(reader, "start", None)) and not getattr(reader, "iterable", False):
        started = cast(StartedReader, reader)
        started.start()
        try:
            while True:
                before()
                yield executor.run(graph, scope)
        except EOFException:
            started.reset()
    else:
        for batch in reader():
            before()
            yield executor.run(graph, scope, batch)
