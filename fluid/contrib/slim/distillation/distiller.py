"""Distillers: each adds a loss between variables of a student and of a teacher to a graph.

`out_nodes["loss"]` of the graph becomes its sum with the loss that was there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluid import layers
from fluid.contrib.slim.graph.graph_wrapper import GraphWrapper
from fluid.framework import Variable, recording_guard

__all__ = ["FSPDistiller", "L2Distiller", "SoftLabelDistiller"]

Pairs = Sequence[Sequence[str]]
"""Pairs of names of variables, the beginning and the end of a section of a network."""


def _with_loss(
    graph: GraphWrapper, name: str, weight: float, loss: Callable[[], Variable]
) -> GraphWrapper:
    """Add a weighted loss to a graph, as the result `name`; returns the graph."""
    with recording_guard(graph.program):
        added = loss() * weight
        before = graph.out_nodes.get("loss")
        total = added + (0 if before is None else graph.var(before).var)
    graph.out_nodes["loss"], graph.out_nodes[name] = total.name, added.name
    return graph


class L2Distiller:
    """The mean squared difference of two feature maps, which are given by name.

    They have the same shape.
    """

    def __init__(
        self,
        student_feature_map: str,
        teacher_feature_map: str,
        distillation_loss_weight: float = 1,
    ) -> None:
        self.student_feature_map = student_feature_map
        self.teacher_feature_map = teacher_feature_map
        self.distillation_loss_weight = distillation_loss_weight

    def distiller_loss(self, graph: GraphWrapper) -> GraphWrapper:
        """Add the loss to a graph, which is returned."""
        student, teacher = self.student_feature_map, self.teacher_feature_map

        def loss() -> Variable:
            difference = graph.var(student).var - graph.var(teacher).var
            return layers.reduce_mean(layers.square(difference))

        return _with_loss(graph, f"l2loss_{student}_{teacher}", self.distillation_loss_weight, loss)


class FSPDistiller:
    """The mean squared differences of how features flow through sections of both networks.

    The flow through a section is `layers.fsp_matrix` of its beginning and end, which have equal
    heights and widths; paired sections have equal numbers of channels.
    """

    def __init__(
        self, student_pairs: Pairs, teacher_pairs: Pairs, distillation_loss_weight: float = 1
    ) -> None:
        self.student_pairs = student_pairs
        self.teacher_pairs = teacher_pairs
        self.distillation_loss_weight = distillation_loss_weight

    def distiller_loss(self, graph: GraphWrapper) -> GraphWrapper:
        """Add the loss to a graph, which is returned."""

        def flow(pair: Sequence[str]) -> Variable:
            begin, end = (graph.var(name).var for name in pair)
            return layers.fsp_matrix(begin, end)

        def loss() -> Variable:
            pairs = zip(self.student_pairs, self.teacher_pairs, strict=False)
            return layers.sum([
                layers.reduce_mean(layers.square(flow(student) - flow(teacher)))
                for student, teacher in pairs
            ])  # fmt: skip

        return _with_loss(graph, "fsp_distillation_loss", self.distillation_loss_weight, loss)


class SoftLabelDistiller:
    """The cross entropy of the student's softmax with the teacher's, which gets no gradient.

    Both feature maps are divided by their temperature first.
    """

    def __init__(
        self,
        student_feature_map: str,
        teacher_feature_map: str,
        student_temperature: float = 1.0,
        teacher_temperature: float = 1.0,
        distillation_loss_weight: float = 1,
    ) -> None:
        self.student_feature_map = student_feature_map
        self.teacher_feature_map = teacher_feature_map
        self.student_temperature = student_temperature
        self.teacher_temperature = teacher_temperature
        self.distillation_loss_weight = distillation_loss_weight

    def distiller_loss(self, graph: GraphWrapper) -> GraphWrapper:
        """Add the loss to a graph, which is returned."""
        student, teacher = self.student_feature_map, self.teacher_feature_map

        def loss() -> Variable:
            own = layers.softmax(graph.var(student).var / self.student_temperature)
            soft = layers.softmax(graph.var(teacher).var / self.teacher_temperature)
            soft.stop_gradient = True
            return layers.reduce_mean(layers.cross_entropy(own, soft, soft_label=True))

        name = f"soft_label_loss_{student}_{teacher}"
        return _with_loss(graph, name, self.distillation_loss_weight, loss)
