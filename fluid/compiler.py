"""`fluid.CompiledProgram`: a program with the strategies and places of a data-parallel run.

Every program is compiled anyway, so a CompiledProgram without data parallelism runs like its
program. Runs on several devices are implemented in `fluid.data_parallel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import ClassVar, Protocol, runtime_checkable

from compiler.errors import did_you_mean
from compiler.support.per_version import PerVersion
from compiler.support.tracebacks import entry_point
from fluid import compat, data_parallel, parameter_server
from fluid.compat.inference.analysis_config import AnalysisConfig, NativeConfig
from fluid.compat.inference.paddle_tensor import PaddleTensor
from fluid.data_parallel.rewrite import computes_gradients
from fluid.data_parallel.strategies import BuildStrategy, ExecutionStrategy
from fluid.framework import Program
from fluid.recording.narrowing import is_sequence
from fluid.running.fetched_values import Value
from fluid.running.places import cpu_places, cuda_places
from runtime.device import PLACES, CPUPlace, Place
from runtime.executor import Executor as Core
from runtime.tensors.scope import Scope

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]


class RunningDevices(Protocol):
    """The devices of a data-parallel run: `fluid.data_parallel.devices.Devices`."""

    @property
    def places(self) -> Sequence[Place]:
        """Their places."""
        ...


class Runner(Protocol):
    """Runs a program on several devices: `fluid.data_parallel.runner.DataParallel`.

    That module is only imported for a program with data parallelism.
    """

    @property
    def devices(self) -> RunningDevices:
        """The devices it runs on."""
        ...

    def run(
        self, runner: Core[Program], feed: object, fetch: tuple[str, ...], strict: bool = False
    ) -> list[list[Value]]:
        """Run the program; returns the fetches of each device."""
        ...

    def local_program(self, fetch: tuple[str, ...] = ()) -> Program:
        """The program of device 0."""
        ...

    def drop_temporaries(self) -> None:
        """Free the memory of temporaries on all devices."""
        ...


Predict = Callable[[Sequence[PaddleTensor]], list[PaddleTensor]]
"""Runs a predictor's model."""


@runtime_checkable
class ProgramGraph(Protocol):
    """A graph of a program: `core.Graph`, whose module is only imported by scripts that use it."""

    def to_program(self) -> Program:
        """The program of its ops."""
        ...


class CompiledProgram:
    """A program for `Executor.run`, with strategies; a `core.Graph` becomes a program first.

    Raises TypeError for anything else.
    """

    predictor_of: ClassVar[Callable[[AnalysisConfig | NativeConfig], Predict]]
    """Loads the model of a config; `fluid.compat.inference.analysis`, which runs it, sets this."""

    def __init__(
        self,
        program_or_graph: Program | ProgramGraph,
        build_strategy: BuildStrategy | None = None,
    ) -> None:
        self.program = _program(program_or_graph)
        self.is_parallel = False
        self._build_strategy = build_strategy or BuildStrategy()
        self._exec_strategy = ExecutionStrategy()
        self._share_vars_from: CompiledProgram | None = None
        self._places: list[Place] | None = None
        self._loss_name: str | None = None
        self._session: tuple[Scope, Place, Runner] | None = None
        self._predict: Predict | None = None
        self._parts: PerVersion[Program, dict[Program, CompiledProgram]]
        self._parts = PerVersion(lambda program: {})
        self._devices: list[RunningDevices] = []

    def part(self, program: Program) -> CompiledProgram:
        """Return the same strategies and devices for `program`, which is pruned from this one."""
        parts = self._parts[self.program]
        if program not in parts:
            part = copy(self)
            part.program = program
            part._session = None
            parts[program] = part
        return parts[program]

    @entry_point
    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Place] | Place | None = None,
    ) -> CompiledProgram:
        """Enable data parallelism on `places`, or on all devices of the executor's kind; returns
        self.

        The default devices are `CPU_NUM` CPUs, or the visible GPUs. With `share_vars_from` the
        devices use the variables of another data-parallel program, which must have run before.

        Raises AssertionError if called twice or for inference, and without `loss_name` for a
        program that computes gradients; TypeError if `loss_name` is no string; ValueError if the
        program has no variable of that name.
        """
        if self.is_parallel:
            raise AssertionError("Already compiled with parallel, cannot be recompiled.")
        if self._predict is not None:
            raise AssertionError("Cannot compile with both data parallel and inference.")
        self._expect_loss(loss_name)
        self.is_parallel = True
        self._loss_name = loss_name
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy or self._exec_strategy
        self._share_vars_from = share_vars_from
        self._places = None if places is None else _listed(places)
        return self

    @entry_point
    def _with_inference_optimize(self, config: AnalysisConfig | NativeConfig) -> CompiledProgram:
        """Run the model of a predictor's config instead of the program; returns self.

        `Executor.run` then takes a list of PaddleTensors and returns such a list. Raises
        AssertionError with data parallelism, if called twice, and for another config.
        """
        if self.is_parallel:
            raise AssertionError("Cannot compile with both data parallel and inference")
        if self._predict is not None:
            raise AssertionError("Already compiled with inference, cannot be recompiled.")
        is_config = isinstance(config, AnalysisConfig | NativeConfig)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_config:
            kind = type(config).__name__
            raise AssertionError(f"config must be an AnalysisConfig or NativeConfig, not {kind}")
        self._predict = CompiledProgram.predictor_of(config)
        return self

    def predict(self, feed: object) -> list[PaddleTensor] | None:
        """The results of the model of `_with_inference_optimize`; None for a program without it.

        Raises AssertionError unless `feed` is a list of PaddleTensors.
        """
        if self._predict is None:
            return None
        given: Sequence[object] = feed if is_sequence(feed) else ()
        tensors = [tensor for tensor in given if isinstance(tensor, PaddleTensor)]
        if not tensors or len(tensors) != len(given):
            raise AssertionError("the feed of a program for inference is a list of PaddleTensors")
        return self._predict(tensors)

    def _expect_loss(self, loss_name: object) -> None:
        if loss_name is None and computes_gradients(self.program):
            raise AssertionError(
                "the program computes gradients: pass loss_name, the name of the loss"
            )
        if loss_name is not None and not isinstance(loss_name, str):
            kind = type(loss_name).__name__
            raise TypeError(f"loss_name must be the name of a variable, not a {kind}")
        if loss_name and loss_name not in self.program.global_block().vars:
            hint = did_you_mean(loss_name, self.program.global_block().vars)
            what = f"loss_name: no variable {loss_name!r} in the program"
            raise ValueError(f"{what}; {hint or 'pass the name of the loss, loss.name'}")

    def _compile(self, scope: Scope, place: Place) -> CompiledProgram:
        """Prepare a data-parallel run in a scope, by an executor on a place; returns self.

        Does nothing for a program without data parallelism. Raises ValueError for another scope or
        place than in the first call, and if `share_vars_from` has not run data parallel;
        AssertionError for places of another kind than the executor's.
        """
        if self.is_parallel:
            self.runner(scope, place)
        return self

    def local_program(self, scope: Scope, place: Place, fetch: tuple[str, ...] = ()) -> Program:
        """Return the program that this process runs; with data parallelism, that of device 0."""
        if not self.is_parallel:
            return self.program
        return self.runner(scope, place).local_program(fetch)

    def runner(self, scope: Scope, place: Place) -> Runner:
        """Return the runner of the program in a scope on a place; raises as `_compile`."""
        if self._session is None:
            self._session = scope, place, self._made(scope, place)
        known_scope, known_place, runner = self._session
        if known_scope is not scope:
            raise ValueError("this CompiledProgram was compiled in another scope: create a new one")
        if type(known_place) is not type(place):
            raise ValueError(
                f"this CompiledProgram was compiled on {known_place}, not on {place}: "
                "create a new one"
            )
        return runner

    def _made(self, scope: Scope, place: Place) -> Runner:
        places = self._places or (cpu_places() if isinstance(place, CPUPlace) else cuda_places())
        if any(type(other) is not type(place) for other in places):
            raise AssertionError(f"Place type not match: the executor is on {place}, not {places}")
        trainers = data_parallel.trainers_of(self.program, self._build_strategy)
        strategies = self._build_strategy, self._exec_strategy
        if (
            len(places) > 1
            and trainers.count == 1
            and any(parameter_server.exchanges(self.program))
        ):
            alone = data_parallel.Devices(places[:1], scope)
            return data_parallel.ServerTrainer(self.program, *strategies, alone, len(places))
        shared = self._shared_devices(self._share_vars_from)
        shared = shared or next(iter(self._devices), None)
        if shared is not None and len(shared.places) != len(places):
            raise ValueError(
                f"share_vars_from runs on {len(shared.places)} devices, this program on "
                f"{len(places)}: pass the same places to both"
            )
        devices = shared or data_parallel.Devices(places, scope, trainers)
        self._devices[:] = [devices]  # a list that parts have too
        return data_parallel.DataParallel(self.program, *strategies, devices)

    # ---- fields of release 1.8.5, which scripts read

    @property
    def _program(self) -> Program:
        return self.program

    @property
    def _graph(self) -> ProgramGraph:
        """A graph of a copy of the program."""
        return compat.graphs.Graph(self.program.desc)

    @property
    def _is_data_parallel(self) -> bool:
        return self.is_parallel

    @property
    def _is_inference(self) -> bool:
        return self._predict is not None

    @property
    def _compiled(self) -> bool:
        """Whether it was compiled for devices."""
        return self._session is not None

    @property
    def _scope(self) -> Scope | None:
        return None if self._session is None else self._session[0]

    @property
    def _place(self) -> Place | None:
        return None if self._session is None else self._session[1]

    @property
    def _executor(self) -> Runner | None:
        """What runs it on devices."""
        return None if self._session is None else self._session[2]

    @staticmethod
    def _shared_devices(source: object) -> RunningDevices | None:
        """Return the devices of `share_vars_from`, None if there are only values in the scope.

        Raises ValueError if it has none.
        """
        if source is None:
            return None
        if not isinstance(source, CompiledProgram) or not source.is_parallel:
            raise ValueError(
                "share_vars_from is not data-parallel: call its with_data_parallel, and run it "
                "before this program"
            )
        if source._session is None:
            raise ValueError(
                "share_vars_from is not compiled and executed, so there is no variables to share: "
                "run it before this program"
            )
        runs_alone = any(parameter_server.exchanges(source.program))
        return None if runs_alone else source._session[2].devices


def _program(program_or_graph: object) -> Program:
    """Return a program, or the program of a graph; TypeError for anything else."""
    if isinstance(program_or_graph, Program):
        return program_or_graph
    if isinstance(program_or_graph, ProgramGraph):
        return program_or_graph.to_program()
    kind = type(program_or_graph).__name__
    raise TypeError(f"CompiledProgram takes a fluid.Program, but received {kind}")


def _listed(places: object) -> list[Place]:
    devices: list[Place] = []
    for place in places if is_sequence(places) else [places]:
        if not isinstance(place, PLACES):
            raise TypeError(f"places are CPUPlace() or CUDAPlace(i), not {type(place).__name__}")
        devices.append(place)
    if not devices:
        raise ValueError("places is an empty list: a program needs one device or more")
    return devices
