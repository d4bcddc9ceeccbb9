"""`DistillationStrategy`: for some epochs, a student learns from a teacher too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.contrib.slim.strategies.context import Context
from fluid.contrib.slim.strategies.strategy import Strategy

__all__ = ["DistillationStrategy"]

_BEFORE = "distillation_backup_optimize_graph"


class Distiller(Protocol):
    """What adds a loss between student and teacher."""

    def distiller_loss(self, graph: GraphWrapper) -> GraphWrapper:
        """Add the loss to a graph."""
        ...


class DistillationStrategy(Strategy):
    """Trains with the losses of distillers, by `distiller_optimizer`, before `end_epoch`.

    The first teacher is used; its variables get no gradient.
    """

    def __init__(
        self,
        distillers: Sequence[Distiller] | None = None,
        start_epoch: int = 0,
        end_epoch: int = 0,
    ) -> None:
        super().__init__(start_epoch, end_epoch)
        self.distillers = list(distillers or ())

    def on_epoch_begin(self, context: Context) -> None:
        """Train the student with the teacher from `start_epoch` on."""
        if context.epoch_id == self.start_epoch:
            self._begin(context)

    def on_epoch_end(self, context: Context) -> None:
        """Train the student alone after the last epoch before `end_epoch`."""
        if context.epoch_id == self.end_epoch - 1:
            context.optimize_graph = cast(GraphWrapper, context.get(_BEFORE))

    def restore_from_checkpoint(self, context: Context, state: dict[str, object]) -> None:
        """Continue in the middle of a distillation."""
        if self.start_epoch < context.epoch_id < self.end_epoch:
            self._begin(context)

    def _begin(self, context: Context) -> None:
        assert context.teacher_graphs, "a distillation needs teacher_programs"
        assert context.distiller_optimizer is not None, "there is no distiller_optimizer"
        teacher = context.teacher_graphs[0]
        for var in teacher.program.list_vars():
            var.stop_gradient = True
        graph = context.train_graph.clone()
        graph.merge(teacher)
        if "loss" in graph.out_nodes:
            graph.out_nodes["student_loss"] = graph.out_nodes["loss"]
        for distiller in self.distillers:
            graph = distiller.distiller_loss(graph)
        trained = graph.get_optimize_graph(
            context.distiller_optimizer, context.place, context.scope,
            list(graph.teacher_persistables),
        )  # fmt: skip
        assert trained is not None, "the graph has no loss"
        trained.teacher_persistables = graph.teacher_persistables
        context.put(_BEFORE, context.optimize_graph)
        context.optimize_graph = trained
