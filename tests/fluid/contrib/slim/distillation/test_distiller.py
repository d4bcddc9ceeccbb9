"""Losses between student and teacher, and two steps of training with them as in release 1.8.5."""

import numpy as np
import pytest

import fluid
from fluid.contrib.slim.distillation import FSPDistiller, L2Distiller, SoftLabelDistiller
from fluid.contrib.slim.graph import SlimGraphExecutor
from tests.fluid.contrib.slim.networks import network

X = np.random.RandomState(0).rand(2, 1, 6, 6).astype("float32") - 0.5


def l2(student, teacher):
    return L2Distiller(student[0], teacher[0], 0.5)


def fsp(student, teacher):
    return FSPDistiller([student[:2]], [teacher[:2]], 2)


def soft(student, teacher):
    return SoftLabelDistiller(student[2], teacher[2], 2.0, 3.0)


def test_losses_and_training() -> None:
    (student, startup, own), (teacher, teacher_startup, others) = network("s_"), network("t_")
    executor, scope = SlimGraphExecutor(fluid.CPUPlace()), fluid.Scope()
    for program in (startup, teacher_startup):
        executor.exe.run(program, scope=scope)
    weights = np.array(scope.find_var("t_w2").get_tensor())
    losses = []
    for make in (l2, fsp, soft):
        graph = student.clone()
        graph.merge(teacher)
        count = len(graph.ops())
        assert make(own, others).distiller_loss(graph) is graph
        assert len(graph.ops()) - count in (5, 8)
        trained = graph.get_optimize_graph(
            fluid.optimizer.Momentum(0.1, 0.9), fluid.CPUPlace(), scope,
            list(graph.teacher_persistables),
        )  # fmt: skip
        assert trained is not None
        trained.out_nodes = {"loss": trained.out_nodes["loss"]}
        for _ in range(2):
            (loss,) = executor.run(trained, scope, [(image,) for image in X])
            losses.append(float(loss[0]))
    assert losses == pytest.approx([0.739, -0.283, -1.396, -2.106, -2.379, -4.44], abs=2e-3)
    assert np.array_equal(np.array(scope.find_var("t_w2").get_tensor()), weights)
