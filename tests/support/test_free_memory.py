"""Tests of data-dependent sizes that are compared with the free memory before memory is taken."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.support import free_memory
from fluid import layers
from runtime.errors import TooLarge

COUNT = 2_000_000_000

FEED = {
    "image": np.ones((1, 2, 4, 4), "float32"),
    "paddings": np.array([0, COUNT, 0, 0], "int32"),
    "ids": np.array([[1], [2]], "int64"),
    "count": np.array([COUNT], "int32"),
    "zero": np.array([0], "float32"),
    "one": np.array([1], "float32"),
    "end": np.array([COUNT], "float32"),
    "sizes": np.array([COUNT, 4], "int32"),
    "map": np.ones((1, 2, 3), "float32"),
    "grid": np.array([1, 1, COUNT, 2], "int32"),
}

CALLS: dict[str, Callable[[Any], Any]] = {
    "pad2d": lambda v: layers.pad2d(v["image"], v["paddings"]),
    "pad2d of edges": lambda v: layers.pad2d(v["image"], v["paddings"], mode="edge"),
    "one_hot": lambda v: layers.one_hot(v["ids"], v["count"], allow_out_of_range=True),
    "fill_constant": lambda v: layers.fill_constant([v["count"], 2], "float32", 1.0),
    "expand": lambda v: layers.expand(v["ids"], [v["count"], 1]),
    "range": lambda v: layers.range(v["zero"], v["end"], v["one"], "float32"),
    "linspace": lambda v: layers.linspace(v["zero"], v["one"], v["count"], "float32"),
    "uniform_random": lambda v: layers.uniform_random([v["count"], 4]),
    "gaussian_random": lambda v: layers.gaussian_random([v["count"], 4]),
    "sequence_mask": lambda v: layers.sequence_mask(v["count"], maxlen=v["count"]),
    "bilinear_interp": lambda v: layers.resize_bilinear(v["image"], out_shape=v["sizes"]),
    "affine_grid": lambda v: layers.affine_grid(v["map"], v["grid"]),
}


@pytest.fixture(autouse=True)
def small_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A machine of 2 GB, of which 1 GB is free, and an empty program."""
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n")
    monkeypatch.setattr(free_memory, "MEMORY_FILE", str(file))
    monkeypatch.setattr(free_memory, "CONTAINER_FILES", ())
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


@pytest.mark.parametrize("name", CALLS)
def test_a_size_from_data_is_refused_before_memory_is_taken(name: str) -> None:
    variables = {key: fluid.data(key, array.shape, array.dtype) for key, array in FEED.items()}
    result = CALLS[name](variables)
    read = {
        name
        for op in fluid.default_main_program().global_block().ops
        for name in op.input_arg_names
    }
    executor = fluid.Executor(fluid.CPUPlace())
    tracemalloc.start()
    with pytest.raises(TooLarge) as caught:
        executor.run(
            feed={key: array for key, array in FEED.items() if key in read}, fetch_list=[result]
        )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 27
    assert str(caught.value).startswith(f"{name.split()[0]}: a value of shape (")
    assert "the 1.00 GiB that are free of the 2.00 GiB of this machine" in str(caught.value)
    assert f"= {name.split()[0]}(" in caught.value.op
    assert "test_free_memory.py:" in caught.value.source


def test_eager_mode_names_the_op_too() -> None:
    with fluid.dygraph.guard():
        image, paddings = (fluid.dygraph.to_variable(FEED[key]) for key in ("image", "paddings"))
        with pytest.raises(TooLarge, match=r"pad2d: a value of shape \(1, 2, 2000000004, 4\)"):
            layers.pad2d(image, paddings).numpy()


def test_the_copy_of_a_fetch_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    result = layers.scale(fluid.data("x", [4], "float32"), 2.0)
    executor = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones(4, "float32")}
    executor.run(feed=feed, fetch_list=[result])
    for module in ("runtime.loader", "compiler.support.free_memory"):
        monkeypatch.setattr(f"{module}.LARGE_BYTES", 15)
    Path(free_memory.MEMORY_FILE).write_text("MemTotal: 2097152 kB\nMemAvailable: 0 kB\n")
    with pytest.raises(TooLarge, match=r"the copy of a fetched float32: a value of shape \(4,\)"):
        executor.run(feed=feed, fetch_list=[result])


def test_a_container_has_what_its_processes_leave(tmp_path: Path, monkeypatch: Any) -> None:
    limit, usage = tmp_path / "memory.max", tmp_path / "memory.stat"
    monkeypatch.setattr(free_memory, "CONTAINER_FILES", ((str(limit), str(usage), "anon"),))
    assert free_memory.free_memory() == (1 << 30, 2 << 30)
    usage.write_text("anon 4096\nfile 77\n")
    for text, expected in (
        ("max", (1 << 30, 2 << 30)),
        ("8192", (4096, 8192)),
        ("", (1 << 30, 2 << 30)),
    ):
        limit.write_text(text + "\n")
        assert free_memory.free_memory() == expected
    Path(free_memory.MEMORY_FILE).unlink()
    assert free_memory.free_memory() == (None, None)
    free_memory.expect_memory((1 << 40,), 8)
