"""Steps that are taken from the cache on disk have the code that they would have without it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler import compile
from compiler.codegen.module import Module
from compiler.codegen.native import target
from compiler.codegen.native.commands import repeated_steps, step_store
from compiler.codegen.native.commands.repeated_steps import (
    BlocksBegun,
    BlocksEnded,
    Called,
    Event,
    OfSize,
    Prepared,
    Scratch,
    Wanted,
)
from compiler.codegen.native.commands.step_store import StepStore
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.machine import MACHINES
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import Dim
from compiler.ir.opdef.size_comparison import Relation, Requirement
from compiler.ir.types import DType
from compiler.support.digested_files import DigestedFiles
from compiler.support.thresholds import lowered
from fluid import layers

Build = Callable[[], Any]


def convolutions() -> Any:
    """Convolutions by each algorithm, norms and pooling."""
    x = layers.data("x", [3, 16, 16])
    x = layers.batch_norm(layers.conv2d(x, 16, 3, padding=1), act="relu")
    x = layers.batch_norm(layers.conv2d(x, 16, 3, padding=1, groups=16), act="relu6")
    x = layers.conv2d(x, 32, 1) + layers.conv2d(x, 32, 1, act="relu")
    return layers.fc(layers.pool2d(x, 2, pool_stride=2, pool_type="avg"), 5, act="softmax")


def wide_convolutions() -> Any:
    """A convolution by Winograd's algorithm, in blocks of tiles."""
    x = layers.data("x", [64, 56, 56])
    return layers.conv2d(layers.conv2d(x, 64, 3, padding=1, act="relu"), 64, 3, padding=1)


def attention() -> Any:
    """Products, softmax and norms."""
    x = layers.data("x", [12, 32])
    scores = layers.softmax(layers.matmul(x, x, transpose_y=True))
    x = layers.layer_norm(layers.matmul(scores, x) + x, begin_norm_axis=2)
    return layers.reduce_mean(layers.fc(x, 8, num_flatten_dims=2, act="gelu"), dim=1)


def embedding() -> Any:
    """Steps of integers, which are not stored, beside others."""
    words = layers.data("x", [4, 1], dtype="int64")
    return layers.fc(layers.embedding(words, [50, 16]), 8, act="tanh")


NETWORKS = [convolutions, wide_convolutions, attention, embedding]


def stored_in(folder: Path, limit: int = 1 << 30) -> StepStore:
    return StepStore(DigestedFiles(folder, limit, ".step"))


def recorded(build: Build, training: bool) -> tuple[Any, str, dict[str, Any]]:
    """A program, its output, and its parameters, which are constant for inference."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        out = build()
        if training:
            out = layers.mean(out)
            fluid.optimizer.Momentum(0.1, 0.9).minimize(out)
    params: dict[str, Any] = {}
    if not training:
        main = main.clone(for_test=True)
        params = {
            var.name: np.ones(var.shape, np.float32) for var in main.list_vars() if var.persistable
        }
    return main, out.name, params


def compiled(build: Build, training: bool, stored: StepStore | None) -> Module:
    main, out, params = recorded(build, training)
    made = NativeTarget(MACHINES["avx2"], stored=stored)
    return compile(main, feed=["x"], fetch=[out], target=made, params=params)


def emitted(monkeypatch: pytest.MonkeyPatch, build: Callable[[], Module]) -> tuple[Module, int]:
    """A module, and the number of steps whose code was generated for it."""
    count = 0
    emit = target._emit_native

    def counting(*args: Any) -> None:
        nonlocal count
        count += 1
        emit(*args)

    with monkeypatch.context() as patched:
        patched.setattr(target, "_emit_native", counting)
        return build(), count


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("build", NETWORKS, ids=lambda build: build.__name__)
def test_modules_are_the_same_with_and_without(
    build: Build, training: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone, all_steps = emitted(monkeypatch, lambda: compiled(build, training, None))
    for steps_expected in (all_steps, max(all_steps // 3, 1)):
        store = stored_in(tmp_path)
        module, steps = emitted(monkeypatch, lambda store=store: compiled(build, training, store))
        assert module.source == alone.source
        assert module.kernels_ir == alone.kernels_ir
        assert steps <= steps_expected
        store.keep()


def test_another_network_of_equal_layers_shares_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def classifier(names: str, classes: int) -> Any:
        x = layers.data("x", [8])
        for number in range(2):
            x = layers.fc(x, 8, act="relu", name=f"{names}{number}")
        return layers.fc(x, classes, act="softmax", name=f"{names}_last")

    store = stored_in(tmp_path)
    compiled(lambda: classifier("first", 3), False, store)
    store.keep()
    alone = compiled(lambda: classifier("other", 5), False, None)
    module, steps = emitted(
        monkeypatch, lambda: compiled(lambda: classifier("other", 5), False, store)
    )
    assert module.source == alone.source
    assert 1 <= steps <= 2  # the last layer and its softmax


def test_steps_that_cannot_be_repeated_are_looked_for_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def layers_of_one_size() -> Any:
        x = layers.data("x", [8])
        for _ in range(6):
            x = layers.fc(x, 8, act="relu")
        return x

    number = repeated_steps.RecordedStep._number

    def unknown(recording: repeated_steps.RecordedStep, operand: Any) -> int:
        recording.is_complete = False
        return number(recording, operand)

    monkeypatch.setattr(repeated_steps.RecordedStep, "_number", unknown)
    store = stored_in(tmp_path)
    forms: list[Any] = []
    monkeypatch.setattr(store, "find", forms.append)
    compiled(layers_of_one_size, False, store)
    assert len(forms) == len({repr(form) for form in forms}) == 2  # that of the feed, and others
    store.keep()
    assert not [*tmp_path.iterdir()]


def test_what_is_known_of_sizes_is_part_of_the_form(tmp_path: Path) -> None:
    """A step that needs no comparison of sizes since there is one is not taken without it."""
    main, out, _ = recorded(convolutions, False)
    graph = to_graph(main, {"x": (Dim.named("N"), 3, 16, 16)}, [out])
    writer = NativeTarget(MACHINES["avx2"]).module_writer(freeze(graph))
    size = Dim.named("N")
    contexts = [writer.context()]
    writer.accesses.expect_at_most(size, 8)
    contexts.append(writer.context())
    writer.required[Requirement(Relation.EQUAL, (size, 8))] = None
    contexts.append(writer.context())
    store = stored_in(tmp_path)
    for number, context in enumerate(contexts):
        store.add(context, [Wanted(number)])
    store.keep()
    assert [store.find(context) for context in contexts] == [[Wanted(n)] for n in range(3)]


EVENTS: list[Event] = [
    Wanted(1),
    Scratch((3, Dim.named("N") * 2), DType.FP32),
    Prepared(
        NativeKernel((), 4, stored=("pack", "text")),
        (0,),
        (7, Dim.named("N") // 4),
        (5,),
        DType.BF16,
    ),
    BlocksBegun(Dim.named("N") * 3),
    Called(NativeKernel((), 2, Dim.named("N"), 9, stored=("f", "code")), (1, 2, OfSize(8))),
    BlocksEnded(),
]


def test_an_entry_has_every_event(tmp_path: Path) -> None:
    store = stored_in(tmp_path)
    assert store.find("form") is None
    store.add("form", EVENTS)
    assert store.find("form") is None  # it is written by `keep`
    store.keep()
    assert stored_in(tmp_path).find("form") == EVENTS
    assert store.find("another form") is None
    with lowered({"operands": 2}):
        assert store.find("form") is None
    assert [step_store.ENTRY.fullmatch(path.name) for path in tmp_path.iterdir()] != [None]


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "no events", "too large"])
def test_damaged_entries_are_removed(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored_in(tmp_path)
    store.add("form", EVENTS)
    store.keep()
    (path,) = tmp_path.iterdir()
    stored = path.read_bytes()
    match damage:
        case "bit":
            path.write_bytes(stored[:-5] + bytes([stored[-5] ^ 1]) + stored[-4:])
        case "cut":
            path.write_bytes(stored[:40])
        case "empty":
            path.write_bytes(b"")
        case "no events":
            path.write_bytes(digested(step_store._packed([[], [["jump", 1]]])))
        case _:
            monkeypatch.setattr(step_store, "LARGEST", 2000)
            path.write_bytes(digested(step_store._packed([[], [["wanted", 0]] * 10_000])))
            assert path.stat().st_size < 2000
    assert store.find("form") is None
    assert not path.exists()


def digested(entry: bytes) -> bytes:
    return hashlib.sha256(entry).digest() + entry


def test_the_folder_stays_below_its_limit(tmp_path: Path) -> None:
    store = stored_in(tmp_path, 4000)
    for number in range(200):
        store.add(number, EVENTS)
        store.keep()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * 4000
