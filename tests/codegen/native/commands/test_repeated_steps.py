"""Steps that equal an earlier one have the code that they would have alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fluid
from compiler import compile
from compiler.codegen.module import Module
from compiler.codegen.native import target
from compiler.codegen.native.commands import repeated_steps
from compiler.plan import Step
from fluid import layers


def pairs() -> Any:
    """Slices of one array, which are views of it at other places, or copies."""
    x = layers.data("x", [6, 4])
    e = x * layers.create_parameter([6, 4], "float32", name="w")
    chosen = [(i, j) for i in range(6) for j in range(i, 6)]
    return layers.sum([layers.reduce_sum(e[:, i] * e[:, j], dim=1) for i, j in chosen])


def blocks() -> Any:
    """Layers with norms and residuals, of which the last is wider."""
    x = layers.data("x", [6, 4])
    x = layers.reshape(x, [-1, 24])
    for width in (24, 24, 24, 12):
        y = layers.fc(layers.layer_norm(x), width, act="relu")
        x = y + x if width == 24 else y
    return layers.softmax(x)


def images() -> Any:
    """Convolutions of which some have equal sizes, and labels, whose numbers are checked."""
    x = layers.reshape(layers.data("x", [6, 4]), [-1, 1, 6, 4])
    for _ in range(3):
        x = layers.batch_norm(layers.conv2d(x, 4, 3, padding=1), act="relu")
    label = layers.data("label", [1], dtype="int64")
    return layers.cross_entropy(layers.fc(x, 3, act="softmax"), label)


def compiled(build: Callable[[], Any]) -> Module:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(build())
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    feed = [name for name in ("x", "label") if main.global_block().has_var(name)]
    return compile(main, feed=feed, fetch=[loss.name], target="native:avx2")


@pytest.mark.parametrize("build", [pairs, blocks, images], ids=lambda build: build.__name__)
def test_modules_are_the_same_with_and_without(
    build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Step] = []
    emit = target._emit_native
    monkeypatch.setattr(
        target, "_emit_native", lambda writer, step: (written.append(step), emit(writer, step))
    )
    with_repeats = compiled(build)
    few = len(written)
    written.clear()
    monkeypatch.setattr(repeated_steps.RepeatedSteps, "write", lambda _, step, emit: emit())
    alone = compiled(build)
    assert with_repeats.source == alone.source
    assert with_repeats.kernels_ir == alone.kernels_ir
    assert few < 0.8 * len(written)
