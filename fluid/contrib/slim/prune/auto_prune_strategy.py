"""`AutoPruneStrategy`: searches for the part of each parameter's filters that goes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fluid.contrib.slim.prune.prune_strategy import MAX_TRIES, PruneStrategy
from fluid.contrib.slim.prune.pruner import StructurePruner
from fluid.contrib.slim.searcher.controller import SAController, Tokens
from fluid.contrib.slim.strategies.context import Context

__all__ = ["AutoPruneStrategy"]

TOLERANCE = 1e-2
"""How far the removed part of flops may be from the middle of the range, at the beginning."""


class AutoPruneStrategy(PruneStrategy):
    """Tries pruned models that a controller proposes, and rewards it with their metric.

    A token is the part of a parameter's filters that goes, in hundredths. A model is tried every
    `retrain_epoch` epochs, trained in them, or without training if that is 0; then the weights
    return. Proposals remove between `min_ratio` and `max_ratio` of the flops. The search begins at
    `init_tokens`, by default equal parts that remove the middle of that range; tokens are below
    `uniform_range` in hundredths, by default below those. At `end_epoch`, the best tokens prune the
    model that is trained on.
    """

    def __init__(
        self,
        pruner: StructurePruner | None = None,
        controller: SAController | None = None,
        start_epoch: int = 0,
        end_epoch: int = 10,
        min_ratio: float = 0.5,
        max_ratio: float = 0.7,
        metric_name: str = "top1_acc",
        pruned_params: str = "conv.*_weights",
        retrain_epoch: int = 0,
        uniform_range: float | None = None,
        init_tokens: Sequence[int] | None = None,
    ) -> None:
        super().__init__(pruner, start_epoch, end_epoch, 0.0, metric_name, pruned_params)
        self.metric = metric_name
        self.min_ratio, self.max_ratio = min_ratio, max_ratio
        self.retrain_epoch = retrain_epoch
        self.uniform_range, self.init_tokens = uniform_range, init_tokens
        self._controller = SAController() if controller is None else controller
        self._params: list[str] = []
        self._tokens: Tokens = []

    def on_compression_begin(self, context: Context) -> None:
        """Find the parameters, and begin the search."""
        graph = context.eval_graph
        assert graph is not None, "there is no eval_program"
        names = [param.name() for param in graph.all_parameters()]
        self._params = [name for name in names if re.match(self.pruned_params, name)]
        if not self._params:
            raise ValueError(f"no parameter matches pruned_params, {self.pruned_params!r}")
        tokens = self.init_tokens
        self._tokens = self._get_init_tokens(context) if tokens is None else list(tokens)
        limits = list(self._tokens)
        if self.uniform_range is not None:
            limits = [round(round(self.uniform_range, 2) / 0.01)] * len(self._params)
        self._controller.reset(limits, self._tokens, lambda tokens: self._fits(context, tokens))

    def on_epoch_begin(self, context: Context) -> None:
        """Prune by the tokens, if a model is tried from this epoch on; at the end by the best."""
        if not self.start_epoch <= context.epoch_id <= self.end_epoch:
            return
        if context.epoch_id == self.end_epoch:
            self._tokens = self._controller.best_tokens or self._tokens
        elif self.retrain_epoch and (context.epoch_id - self.start_epoch) % self.retrain_epoch:
            return
        self._prune(context, self._params, _ratios(self._tokens))
        context.skip_training = self.retrain_epoch == 0 and context.epoch_id < self.end_epoch

    def on_epoch_end(self, context: Context) -> None:
        """Reward the tokens and take the weights back, if the model was tried to this epoch."""
        if not self.start_epoch <= context.epoch_id < self.end_epoch:
            return
        passed = context.epoch_id - self.start_epoch + 1
        if self.retrain_epoch == 0 or passed % self.retrain_epoch == 0:
            self._controller.update(self._tokens, context.latest_result(self.metric))
            self._tokens = self._controller.next_tokens()
            self._restore(context)

    def restore_from_checkpoint(self, context: Context, state: dict[str, object]) -> None:
        """Raise RuntimeError: checkpoints have pruned models, without what the search restores."""
        raise RuntimeError(
            "a search by AutoPruneStrategy cannot continue from a checkpoint, which has a pruned "
            "model only: set another checkpoint_path, or remove the folder"
        )

    def _fits(self, context: Context, tokens: Tokens) -> bool:
        """Whether tokens remove a part of the flops within the range."""
        removed = self._removed(context, _ratios(tokens))
        return self.min_ratio <= removed <= self.max_ratio

    def _get_init_tokens(self, context: Context) -> Tokens:
        """Return equal tokens that remove the middle of the range."""
        target, low, high, ratio = (self.min_ratio + self.max_ratio) / 2, 0.0, 1.0, 0.5
        for _ in range(MAX_TRIES):
            ratio = (low + high) / 2
            removed = self._removed(context, [ratio] * len(self._params))
            if abs(removed - target) < TOLERANCE:
                break
            low, high = (low, ratio) if removed > target else (ratio, high)
        return [int(ratio / 0.01)] * len(self._params)

    def _removed(self, context: Context, ratios: Sequence[float]) -> float:
        assert context.eval_graph is not None, "there is no eval_program"
        return self._removed_flops(context.eval_graph, context.scope, self._params, ratios)


def _ratios(tokens: Sequence[int]) -> list[float]:
    return [token * 0.01 for token in tokens]
