"""The work of recording and compiling grows like the program: calls are counted, not seconds.

Each program is compiled at two lengths, the second with twice as many ops. A stage or pass that
looks at all ops for each op makes four times the calls.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import fluid
from compiler.codegen.native.target import NativeTarget
from compiler.driver import feed_shapes, planned
from compiler.ir.conversion.overwritten_values import with_saved_values
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.graph import Graph
from compiler.ir.text.program_printer import program_digest
from compiler.options import Options
from compiler.passes.base import Context, Pass
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from fluid import layers

MOST = 1.25
"""Allowed growth of calls ÷ growth of ops; a quadratic stage comes near 2."""

FEWEST = 2000
"""Calls below which a stage is not judged."""

TARGET = NativeTarget()


class Calls:
    """Calls of Python functions and of built-in ones, by the stage in which they are made."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._stage = ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        outer, self._stage = self._stage, name
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(before)
            self._stage = outer

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.counts[self._stage] += 1

    # ---- an observer of passes ----

    def start(self, g: Graph, ctx: Context) -> None:
        self._stage = "verification"

    def before(self, each: Pass, g: Graph) -> None:
        self._stage = each.name

    def after(self, each: Pass, g: Graph, ctx: Context) -> None:
        self._stage = "verification"


def pairs(count: int) -> Any:
    """Products of all pairs of fields, and their sum: an op of many inputs, a var of many readers."""
    fields = 2
    while fields * (fields - 1) // 2 < count:
        fields += 1
    x = layers.data("x", [fields, 4])
    w = layers.create_parameter([fields, 4], "float32")
    e = layers.elementwise_mul(x, w, axis=1)
    chosen = [(i, j) for i in range(fields) for j in range(i + 1, fields)][:count]
    products = [layers.reduce_sum(e[:, i] * e[:, j], dim=1, keep_dim=True) for i, j in chosen]
    return layers.mean(layers.sum(products))


def chain(count: int) -> Any:
    """Layers one after the other, each with parameters of its own."""
    x = layers.data("x", [8])
    for _ in range(count):
        x = layers.fc(x, 8, act="relu")
    return layers.mean(x)


def towers(count: int) -> Any:
    """Layers next to each other over one input, joined at the end."""
    x = layers.data("x", [8])
    joined = layers.concat([layers.fc(x, 4, act="tanh") for _ in range(count)], axis=1)
    return layers.mean(layers.fc(joined, 1))


def norms(count: int) -> Any:
    """Batch norms, which write state that their gradients and the inputs' statistics share."""
    x = layers.data("x", [4, 6, 6])
    for _ in range(count):
        x = layers.batch_norm(layers.conv2d(x, 4, 3, padding=1, bias_attr=False), act="relu")
    return layers.mean(x)


def sum_of_many(count: int) -> Any:
    """An op of many inputs, which all have one input; no parameters."""
    x = layers.data("x", [8])
    return layers.sum([layers.scale(x, 1.0 + n) for n in range(count)])


PROGRAMS: dict[str, tuple[Callable[[int], Any], int]] = {
    "pairs": (pairs, 21),
    "chain": (chain, 8),
    "towers": (towers, 8),
    "norms": (norms, 8),
    "sum of many": (sum_of_many, 80),
}


def calls_of(build: Callable[[int], Any], count: int) -> tuple[int, Counter[str]]:
    """The number of ops, and the calls by stage."""
    calls, main, startup = Calls(), fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        with calls.stage("recording"):
            loss = build(count)
        with calls.stage("minimize"):
            if main.all_parameters():
                fluid.optimizer.Adam(0.001).minimize(loss)
    with calls.stage("digest"):
        program_digest(main)
    with calls.stage("saved values"):
        with_saved_values(main)
    with calls.stage("to_graph"):
        shape = ("N", *main.global_block().var("x").shape[1:])
        graph = to_graph(main, feed_shapes(main, {"x": shape}), [loss.name])
    options = Options()
    with calls.stage("verification"):
        run_passes(graph, pipeline(options, TARGET), Context(), [calls])
    with calls.stage("freeze"):
        plan = planned(graph, options)
    with calls.stage("emit"):
        TARGET.emit(plan)
    return len(main.global_block().ops), calls.counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_twice_the_ops_take_twice_the_calls(name: str) -> None:
    build, count = PROGRAMS[name]
    calls_of(build, 3)  # what is imported or cached at first is not counted
    (short, before), (long, after) = (calls_of(build, n) for n in (count, 2 * count))
    grown = {
        stage: (calls / before[stage]) / (long / short)
        for stage, calls in after.items()
        if calls > FEWEST
    }
    assert len(grown) > 5
    assert not {stage: round(each, 2) for stage, each in grown.items() if each > MOST}
