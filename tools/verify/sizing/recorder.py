"""Records a program of layers, its gradients, and the arrays that it is fed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

import fluid
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import Dim
from compiler.ir.program import GRAD
from compiler.ir.types import is_floating
from compiler.support.cached_property import cached_property
from runtime.sizes import LOD
from tests.ops.scaled import drift
from tools.verify.sizing.problem import Built, Problem

layers = fluid.layers
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Drawn:
    """How an array is drawn: its shape and type, and the range of its values.

    `has_batch`: the first size is a batch size, which may have a name. `lengths` are those of the
    sequences in it.
    """

    shape: Shape
    dtype: str
    low: float
    high: float
    has_batch: bool = True
    lengths: tuple[int, ...] = ()

    def array(self, name: str, seed: int) -> np.ndarray:
        """The array of a name and a seed."""
        rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
        if self.dtype.startswith("int"):
            return rng.integers(int(self.low), int(self.high), self.shape).astype(self.dtype)
        count = int(np.prod(self.shape))
        return drift(rng, self.low, self.high, count, self.dtype).reshape(self.shape)


@dataclass
class Recorder:
    """Declares the inputs of a program while it is recorded."""

    inputs: dict[str, Drawn] = field(default_factory=dict)
    fetched: list[Any] = field(default_factory=list)

    def floats(
        self,
        name: str,
        shape: Sequence[int],
        low: float = -1.0,
        high: float = 1.0,
        *,
        has_gradient: bool = True,
        has_batch: bool = True,
        lengths: Sequence[int] = (),
    ) -> Any:
        """A float32 input, whose gradient is fetched if it has one."""
        drawn = Drawn(tuple(shape), "float32", low, high, has_batch, tuple(lengths))
        var = self._declared(name, drawn)
        var.stop_gradient = not has_gradient
        return var

    def integers(
        self,
        name: str,
        shape: Sequence[int],
        high: int,
        dtype: str = "int64",
        low: int = 0,
        *,
        lengths: Sequence[int] = (),
    ) -> Any:
        """An input of integers from `low` up to `high`."""
        return self._declared(name, Drawn(tuple(shape), dtype, low, high, True, tuple(lengths)))

    def _declared(self, name: str, drawn: Drawn) -> Any:
        self.inputs[name] = drawn
        shape = list(drawn.shape)
        if drawn.lengths:
            return fluid.data(name, [None, *shape[1:]], drawn.dtype, lod_level=1)
        return fluid.data(name, shape, drawn.dtype)


@dataclass(frozen=True)
class Recorded:
    """A recorded program and how its arrays are drawn; sizes equal to `batch` may have a name."""

    name: str
    record: Callable[[Recorder], Sequence[Any]]
    has_gradient: bool = True
    has_names: bool = False

    def problem(self, seed: int) -> Problem:
        """The problem with the inputs of a seed."""
        _, recorder, _, state = self._program
        feed = {n: d.array(f"{self.name} {n}", seed) for n, d in recorder.inputs.items()}
        offsets = {
            f"{n}{LOD}0": np.append(0, np.cumsum(d.lengths)).astype(np.int64)
            for n, d in recorder.inputs.items()
            if d.lengths
        }
        read = {var.name for var in self.build()[0].params()}
        drawn = {n: self._redrawn(n, a, seed) for n, a in state.items() if n in read}
        return Problem(self.build, {**feed, **offsets}, drawn)

    def build(self) -> Built:
        """A new graph of the program."""
        main, recorder, fetched, _ = self._program
        shapes = dict[str, Any]()
        for name, drawn in recorder.inputs.items():
            is_named = self.has_names and drawn.has_batch and not drawn.lengths
            shapes[name] = (Dim.named("N"), *drawn.shape[1:]) if is_named else drawn.shape
            if drawn.lengths:
                shapes[f"{name}{LOD}0"] = (len(drawn.lengths) + 1,)
        graph = to_graph(main, shapes, fetched)
        return graph, [var.label for var in graph.results]

    def _redrawn(self, name: str, array: np.ndarray, seed: int) -> np.ndarray:
        """Initial values; those of arrays that are constant, such as scales, are drawn near it."""
        if not is_floating(array.dtype) or array.size < 2 or array.min() != array.max():
            return array
        low = float(array.flat[0]) + 0.05
        return Drawn(array.shape, array.dtype.name, low, low + 0.6).array(name, seed)

    @cached_property
    def _program(self) -> tuple[Any, Recorder, list[str], Mapping[str, np.ndarray]]:
        main, startup, recorder = fluid.Program(), fluid.Program(), Recorder()
        main.random_seed = startup.random_seed = 7
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            outputs = list(self.record(recorder))
            if self.has_gradient:
                _append_gradients(recorder, outputs, not self.has_names)
        names = [*recorder.inputs, *(p.name for p in main.all_parameters())]
        block = main.global_block()
        gradients = [n + GRAD for n in names if self.has_gradient and block.has_var(n + GRAD)]
        return main, recorder, [v.name for v in outputs] + gradients, _initial(startup)


def _append_gradients(recorder: Recorder, outputs: Sequence[Any], is_static: bool) -> None:
    """Append the gradients of the sum of float outputs.

    With static sizes each element has a weight; otherwise it is squared.
    """
    total: Any = None
    for place, out in enumerate(o for o in outputs if "FP32" in str(o.dtype)):
        shape = tuple(out.shape)
        if shape in ((), (1,)):
            part = out
        elif is_static and min(shape) > 0:
            weight = recorder.floats(f"weight{place}", shape, -0.7, 1.0, has_gradient=False)
            part = layers.reduce_sum(layers.elementwise_mul(out, weight))
        else:
            part = layers.reduce_sum(layers.square(out))
        total = part if total is None else layers.elementwise_add(total, part)
    fluid.backward.append_backward(total)


def _initial(startup: Any) -> dict[str, np.ndarray]:
    """What a startup program leaves."""
    scope = fluid.Scope()
    names = [var.name for var in startup.list_vars() if var.persistable]
    with fluid.scope_guard(scope), patch.dict(os.environ, {"FLUID_TARGET": "numpy"}):
        if startup.global_block().ops:
            fluid.Executor(fluid.CPUPlace()).run(startup)
    variables = {name: scope.find_var(name) for name in names}
    return {name: np.array(var.get_tensor()) for name, var in variables.items() if var is not None}
