"""The targets of `tools/verify/sizes.py`: how each compiles a graph and runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import runtime
from compiler.codegen.module import Module
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.codegen.target import Target
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.ir.graph import Graph
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from runtime.gpu.package import machine_library
from tests.tools.ptx.on_machine import on_machine
from tools.verify.sizing.problem import Arrays, Problem, named

Step = Callable[[dict[str, Any]], Sequence[Any]]
State = MutableMapping[str, np.ndarray]


class OnHost(Exception):
    """A graph has ops that the target leaves to the host."""


class DifferentBits(Exception):
    """Results depend on the number of threads."""


@dataclass(frozen=True)
class Way:
    """A way to run graphs: the generator of code, and what loads it; `kernels` requires kernels."""

    target: Target
    load: Callable[[Module, State], Step]
    environment: tuple[tuple[str, str], ...] = ()
    kernels: bool = False
    has_threads: bool = False

    def expect_kernels(self, graph: Graph) -> None:
        """Raise OnHost if this target requires kernels and an op of a graph has none."""
        run_passes(graph, [NameSizes()] if self.kernels else [], Context())
        for op in graph.ops() if self.kernels else ():
            if why := self.target.supports(op):
                raise OnHost(f"{op.kind}: {why}")

    def prepare(self) -> None:
        """Set the environment that the code of this target needs; before anything is loaded."""
        os.environ.update(dict(self.environment))

    def compile(self, graph: Graph) -> Module:
        """The module of a graph."""
        run_passes(graph, pipeline(Options(), self.target), Context())
        return self.target.emit(freeze(graph))


def _on_cpu(module: Module, state: State) -> Step:
    return runtime.load(module, params=state)


def _on_gpu(module: Module, state: State) -> Step:
    return runtime.load(module, runtime.CUDAPlace(0), state)


def _on_machine(module: Module, state: State) -> Step:
    return on_machine(module, machine_library("ptx:80"), state)


_INTERPRETED = (("TRITON_INTERPRET", "1"),)
WAYS = {
    "numpy": Way(NumpyTarget(), _on_cpu),
    "native": Way(NativeTarget(), _on_cpu, has_threads=True),
    "triton": Way(TritonTarget(), _on_gpu, _INTERPRETED, kernels=True),
    "ptx": Way(TritonTarget(), _on_machine, _INTERPRETED, kernels=True),
    "cuda": Way(TritonTarget(), _on_gpu),
}
"""The targets by name: NumPy, machine code of this CPU, Triton's interpreter, the machine that runs
PTX without a GPU, and a GPU."""


class Runner:
    """Runs the problems of one case, which is compiled once, with each number of threads."""

    def __init__(self, way: Way, threads: Sequence[int]) -> None:
        self.way, self.threads = way, threads if way.has_threads else (1,)
        self.module: Module | None = None
        self.names: list[str] = []

    def __call__(self, problem: Problem) -> Arrays:
        """Results and state by name; raises DifferentBits if they depend on the threads."""
        if self.module is None:
            self.way.expect_kernels(problem.build()[0])
            graph, self.names = problem.build()
            self.module = self.way.compile(graph)
        first, *others = (self._run(problem, self.module, count) for count in self.threads)
        for count, other in zip(self.threads[1:], others, strict=True):
            for name, array in first.items():
                if array.tobytes() != other[name].tobytes():
                    raise DifferentBits(f"{name} has other bits with {count} threads")
        return first

    def _run(self, problem: Problem, module: Module, threads: int) -> Arrays:
        os.environ["CPU_NUM"] = str(threads)
        state = {name: np.array(array) for name, array in problem.state.items()}
        step = self.way.load(module, state)
        feed = {name: np.array(array) for name, array in problem.feed.items()}
        results = [np.array(np.asarray(array)) for array in step(feed)]
        return named(self.names, results, state)
