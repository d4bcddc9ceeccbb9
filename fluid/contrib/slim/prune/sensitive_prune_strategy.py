"""`SensitivePruneStrategy`: removes more of the filters on which the results depend less."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import numpy as np

from compiler.ir.types import Array
from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.contrib.slim.prune.prune_strategy import MAX_TRIES, PruneStrategy
from fluid.contrib.slim.prune.pruner import StructurePruner
from fluid.contrib.slim.strategies.context import Context
from fluid.saving.files import replace_file

__all__ = ["SensitivePruneStrategy"]

TOLERANCE = 0.015
"""How far the removed part of flops may be from the target."""
CONVERGED = 0.005
"""The relative change of a metric between evaluations below which the next step follows."""


class Sensitivity(TypedDict):
    """What the metric loses if parts of a parameter's filters are zero."""

    pruned_percent: list[float]
    loss: list[float]
    size: NotRequired[int]


Sensitivities = dict[str, Sensitivity]
"""Sensitivities by the name of a parameter."""


class SensitivePruneStrategy(PruneStrategy):
    """Removes filters so that each parameter costs the metric as much.

    First the metric is measured with parts of each parameter's filters zero: `delta_rate`, twice as
    many, and so on. Curves of third degree through these numbers say which parts cost as much, and
    a binary search finds the cost for which `target_ratio` of the flops go, in `num_steps` steps:
    the first at `start_epoch`, each other one when the metric has changed by less than 0.5 % in an
    epoch. Evaluations take a random part, `eval_rate`, of the batches if it is given.

    `sensitivities_file` keeps what was measured, as JSON, for the next run.
    """

    def __init__(
        self,
        pruner: StructurePruner | None = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
        delta_rate: float = 0.20,
        target_ratio: float = 0.5,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        sensitivities_file: str | None = "./sensitivities.data",
        sensitivities: Sensitivities | None = None,
        num_steps: int = 1,
        eval_rate: float | None = None,
    ) -> None:
        super().__init__(pruner, start_epoch, end_epoch, target_ratio, metric_name, pruned_params)
        self.metric = metric_name
        self.delta_rate = delta_rate
        self.sensitivities_file = sensitivities_file
        self.sensitivities = sensitivities or {}
        self.num_steps = num_steps
        self.eval_rate = eval_rate
        self.pruning_step = 1 - (1 - target_ratio) ** (1.0 / num_steps)
        self._pruned: list[tuple[list[str], list[float]]] = []

    def on_epoch_begin(self, context: Context) -> None:
        """Measure and prune, if a step follows at this epoch."""
        if self.num_steps <= 0:
            return
        if self.start_epoch == context.epoch_id or context.eval_converged(self.metric, CONVERGED):
            self.num_steps -= 1
            sensitivities = self._compute_sensitivities(context)
            params, ratios = self._get_best_ratios(context, sensitivities)
            self._pruned.append((params, ratios))
            self._prune(context, params, ratios)

    def saved_state(self) -> dict[str, object]:
        """Return the steps that are left, and what went in the others."""
        return {"num_steps": self.num_steps, "pruned": self._pruned}

    def restore_from_checkpoint(self, context: Context, state: dict[str, object]) -> None:
        """Prune again; which filters go does not matter, since their values are loaded."""
        self.num_steps = cast(int, state["num_steps"])
        self._pruned = cast("list[tuple[list[str], list[float]]]", state["pruned"])
        for params, ratios in self._pruned:
            self._prune(context, params, ratios)

    # ---- measuring

    def _compute_sensitivities(self, context: Context) -> Sensitivities:
        """Return what was measured earlier, completed for all parameters and parts."""
        graph = _evaluated(context)
        file = self.sensitivities_file
        if file is not None and self.start_epoch != context.epoch_id:
            file = f"{file}.epoch{context.epoch_id}"
        sensitivities = {**self.sensitivities, **_loaded(file)}
        for param in graph.all_parameters():
            if re.match(self.pruned_params, param.name()):
                empty: Sensitivity = {"pruned_percent": [], "loss": [], "size": param.shape()[0]}
                sensitivities.setdefault(param.name(), empty)
        if not sensitivities:
            raise ValueError(f"no parameter matches pruned_params, {self.pruned_params!r}")
        sample, whole = int(np.random.randint(1000)), None
        for name in list(sensitivities):
            ratio = round(self.delta_rate, 2)
            while ratio < 1:
                if ratio not in sensitivities[name]["pruned_percent"]:
                    whole = self._measured(context, sample) if whole is None else whole
                    self._measure(context, sensitivities, name, ratio, whole, sample)
                    if file is not None:
                        replace_file(Path(file), json.dumps(sensitivities).encode())
                ratio = round(ratio + self.delta_rate, 2)
        return sensitivities

    def _measure(
        self,
        context: Context,
        sensitivities: Sensitivities,
        name: str,
        ratio: float,
        whole: float,
        sample: int,
    ) -> None:
        """Measure the model with a part of a parameter's filters zero, for all that go with it."""
        assert self.pruner is not None, "there is no pruner"
        slices = self._slices(_evaluated(context), context.scope, [name], [ratio])
        tensors = {each: context.scope.var(each).get_tensor() for each in sorted(slices.indices)}
        before = {each: np.array(tensor) for each, tensor in tensors.items()}
        for each, by_axis in slices.indices.items():
            array = before[each]
            for axis, removed in by_axis.items():
                array = self.pruner.prune_tensor(array, sorted(removed), axis, lazy=True)
            tensors[each].set(array, context.place)
        try:
            lost = whole - self._measured(context, sample)
        finally:
            for each, tensor in tensors.items():
                tensor.set(before[each], context.place)
        for each, by_axis in slices.indices.items():
            if 0 in by_axis and re.match(self.pruned_params, each):
                entry = sensitivities.setdefault(each, {"pruned_percent": [], "loss": []})
                entry["pruned_percent"].append(ratio)
                entry["loss"].append(lost)

    def _measured(self, context: Context, sample: int) -> float:
        return context.measured_result(self.metric, self.eval_rate, sample)

    # ---- choosing

    def _get_best_ratios(
        self, context: Context, sensitivities: Sensitivities
    ) -> tuple[list[str], list[float]]:
        """Return the names of the parameters, and the part of the filters of each."""
        graph = _evaluated(context)
        params = list(sensitivities)
        curves = [_curve(sensitivities[name]) for name in params]
        largest = [max(sensitivities[name]["pruned_percent"], default=0.0) for name in params]
        costs = [cost for name in params for cost in sensitivities[name]["loss"]]
        low, high = 0.0, max(costs, default=0.0)
        if high <= low:
            raise ValueError(
                f"{self.metric!r} falls for no part of the filters, so no curve says what they "
                "cost: measure more batches, or train the model first"
            )
        ratios: list[float] = []
        for _ in range(MAX_TRIES):
            lost = (low + high) / 2
            ratios = _ratios(curves, lost, largest)
            removed = self._removed_flops(graph, context.scope, params, ratios)
            if abs(removed - self.pruning_step) < TOLERANCE:
                break
            low, high = (low, lost) if removed > self.pruning_step else (lost, high)
        return params, ratios


def _evaluated(context: Context) -> GraphWrapper:
    assert context.eval_graph is not None, "there is no eval_program"
    return context.eval_graph


def _curve(sensitivity: Sensitivity) -> Array:
    """Return the coefficients of the cost by part of the filters, highest degree first.

    The origin counts five times. With less than four parts the curve is the one nearest to ten in
    each coefficient, where the iteration of the reference begins.
    """
    parts = np.array([0.0] * 5 + sensitivity["pruned_percent"])
    costs = np.array([0.0] * 5 + sensitivity["loss"])
    powers, start = np.vander(parts, 4), np.full(4, 10.0)
    return start + np.linalg.lstsq(powers, costs - powers @ start, rcond=None)[0]


def _ratios(curves: Sequence[Array], lost: float, largest: Sequence[float]) -> list[float]:
    """Return where each curve has a cost; the part before, or all measured, if it nowhere has."""
    ratios: list[float] = []
    for curve, most in zip(curves, largest, strict=True):
        shifted = curve - np.array([0.0, 0.0, 0.0, lost])
        roots = [float(r.real) for r in np.roots(shifted) if np.isreal(r) and 0 < r.real < 1]
        ratios.append(roots[-1] if roots else ratios[-1] if ratios else most)
    return ratios


def _loaded(file: str | None) -> Sensitivities:
    """Return the sensitivities of a file, none without one; ValueError if it is not JSON."""
    path = None if file is None else Path(file)
    if path is None or not path.exists():
        return {}
    try:
        loaded: Sensitivities = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"sensitivities_file {file!r} is not JSON: a pickle of release 1.8.5 is not read. "
            "Remove it, or give another name"
        ) from error
    for entry in loaded.values():
        entry["pruned_percent"] = [round(part, 2) for part in entry["pruned_percent"]]
    return loaded
