"""Strategies that prune a model before it is trained further."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import cast

import numpy as np

from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.contrib.slim.prune.channels import PrunedSlices
from fluid.contrib.slim.prune.pruner import StructurePruner
from fluid.contrib.slim.strategies.context import Context
from fluid.contrib.slim.strategies.strategy import Strategy
from runtime.tensors.scope import Scope

__all__ = ["PruneStrategy", "UniformPruneStrategy"]

TOLERANCE = 1e-2
"""How far the removed part of flops may be from the target."""
MAX_TRIES = 40


class PruneStrategy(Strategy):
    """Removes filters of convolutions so that `target_ratio` of the flops go, for subclasses.

    Of parameters whose names `pruned_params`, a regular expression, matches, the pruner chooses
    filters; what reads their outputs becomes smaller too, with what optimizers keep. `metric_name`
    is kept as given.
    """

    def __init__(
        self,
        pruner: StructurePruner | None = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        target_ratio: float = 0.5,
        metric_name: str | None = None,
        pruned_params: str = "conv.*_weights",
    ) -> None:
        super().__init__(start_epoch, end_epoch)
        self.pruner = pruner
        self.target_ratio = target_ratio
        self.metric_name = metric_name
        self.pruned_params = pruned_params
        self._before: dict[str, np.ndarray] = {}

    def _slices(
        self, graph: GraphWrapper, scope: Scope, params: Sequence[str], ratios: Sequence[float]
    ) -> PrunedSlices:
        """Choose the slices that go with these parts of filters of parameters."""
        assert self.pruner is not None, "there is no pruner"
        slices = PrunedSlices(graph)
        for name, ratio in zip(params, ratios, strict=True):
            if 0 in slices.indices.get(name, {}):
                continue
            array = _array(scope, name)
            inputs = sorted(slices.indices.get(name, {}).get(1, ()))
            array = np.delete(array, inputs, 1)
            indices = self.pruner.cal_pruned_idx(name, array, ratio, axis=0)
            slices.prune_filters(graph.var(name), indices.tolist())
        return slices

    def _prune(self, context: Context, params: Sequence[str], ratios: Sequence[float]) -> None:
        """Prune the trained and the evaluated graph, and the tensors of the scope."""
        graph = context.optimize_graph
        assert graph is not None, "there is no graph to train"
        assert self.pruner is not None, "there is no pruner"
        slices = self._slices(graph, context.scope, params, ratios)
        self._before = {name: _array(context.scope, name) for name in slices.indices}
        for name, by_axis in slices.indices.items():
            array = self._before[name]
            for axis, removed in by_axis.items():
                array = self.pruner.prune_tensor(array, sorted(removed), axis)
            context.scope.var(name).get_tensor().set(array, context.place)
        _reshape(context, slices.shapes())

    def _restore(self, context: Context) -> None:
        """Take back the last pruning, and all training since of what it changed."""
        for name, array in self._before.items():
            context.scope.var(name).get_tensor().set(array, context.place)
        _reshape(context, {name: array.shape for name, array in self._before.items()})

    def _removed_flops(
        self, graph: GraphWrapper, scope: Scope, params: Sequence[str], ratios: Sequence[float]
    ) -> float:
        """Return the part of a graph's flops that pruning removes."""
        shapes = self._slices(graph, scope, params, ratios).shapes()
        return 1 - _flops_with(graph, shapes) / graph.flops()


class UniformPruneStrategy(PruneStrategy):
    """Removes an equal part of the filters of each parameter, at the beginning of `start_epoch`."""

    params: Sequence[str] = ()
    ratios: Sequence[float] = ()

    def on_epoch_begin(self, context: Context) -> None:
        """Find the part that reaches the target, and prune."""
        if context.epoch_id == self.start_epoch:
            self.params, self.ratios = self._get_best_ratios(context)
            self._prune(context, self.params, self.ratios)

    def saved_state(self) -> dict[str, object]:
        """Return the names of the parameters and the parts of their filters that went."""
        return {"params": list(self.params), "ratios": list(self.ratios)}

    def restore_from_checkpoint(self, context: Context, state: dict[str, object]) -> None:
        """Prune again; which filters go does not matter, since their values are loaded."""
        self.params = cast("list[str]", state["params"])
        self.ratios = cast("list[float]", state["ratios"])
        self._prune(context, self.params, self.ratios)

    def _get_best_ratios(self, context: Context) -> tuple[list[str], list[float]]:
        """Return the names of the pruned parameters, and the same part for each."""
        graph = context.eval_graph
        assert graph is not None, "there is no eval_program"
        names = [param.name() for param in graph.all_parameters()]
        params = [name for name in names if re.match(self.pruned_params, name)]
        if not params:
            raise ValueError(f"no parameter matches pruned_params, {self.pruned_params!r}")
        low, high, ratio = 0.0, 1.0, 0.5
        for _ in range(MAX_TRIES):
            ratio = (low + high) / 2
            removed = self._removed_flops(graph, context.scope, params, [ratio] * len(params))
            if abs(removed - self.target_ratio) < TOLERANCE:
                break
            low, high = (low, ratio) if removed > self.target_ratio else (ratio, high)
        return params, [ratio] * len(params)


def _array(scope: Scope, name: str) -> np.ndarray:
    var = scope.find_var(name)
    if var is None:
        raise ValueError(f"parameter {name!r} has no value in the scope: run the startup program")
    return np.array(var.get_tensor())


def _reshape(context: Context, shapes: dict[str, tuple[int, ...]]) -> None:
    """Set the shapes of variables in the trained and the evaluated graph, and what follows."""
    for graph in (context.optimize_graph, context.eval_graph):
        if graph is not None:
            known = {var.name() for var in graph.vars()}
            for name, shape in shapes.items():
                if name in known:
                    graph.var(name).set_shape(shape)
            _fit_groups(graph, shapes)
            graph.infer_shape()
            graph.compiled_graph = None


def _flops_with(graph: GraphWrapper, shapes: dict[str, tuple[int, ...]]) -> float:
    """Return the flops of a graph whose parameters have other shapes."""
    before = {name: graph.var(name).shape() for name in shapes}
    for name, shape in shapes.items():
        graph.var(name).set_shape(shape)
    try:
        return graph.flops()
    finally:
        for name, shape in before.items():
            graph.var(name).set_shape(shape)


def _fit_groups(graph: GraphWrapper, pruned: Container[str]) -> None:
    """Set the groups of convolutions of one channel a group to the numbers of their filters.

    Those whose filters were not `pruned` stay, which may have several filters a group.
    """
    for op in graph.ops():
        if op.type().removesuffix("_grad") in ("conv2d", "depthwise_conv2d"):
            weight = op.inputs("Filter")[0]
            count, channels = weight.shape()[:2]
            if weight.name() in pruned and channels == 1 and op.attr("groups") > 1:
                op.set_attr("groups", count)
