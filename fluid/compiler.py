"""`fluid.CompiledProgram` and the strategies it takes.

Every program is compiled here, so on one device a CompiledProgram runs as its program does, and
the strategies, which steer how the reference fuses ops and spreads threads, change nothing. What
would change numbers is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

from compiler.errors import did_you_mean
from compiler.ir.program import OpRole
from fluid.framework import Program
from fluid.places import cpu_places
from runtime.device import PLACES, Place
from runtime.errors import PlaceError

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]


class _Strategy:
    """Settings by name, each with a default; AttributeError for a name that there is not."""

    _defaults: ClassVar[MappingProxyType[str, Any]]

    def __init_subclass__(cls) -> None:
        for name, value in cls._defaults.items():
            setattr(cls, name, value)

    def __init__(self) -> None:
        for name, value in self._defaults.items():
            setattr(self, name, copy(value))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            hint = did_you_mean(name, self._defaults)
            raise AttributeError(f"{type(self).__name__} has no {name!r}; {hint}".rstrip("; "))
        super().__setattr__(name, value)


class ReduceStrategy(Enum):
    """Whether every device updates all parameters, or each one its share."""

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(Enum):
    """What the gradient of the loss is on each of several devices."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class BuildStrategy(_Strategy):
    """How the reference builds the graph of a CompiledProgram.

    >>> strategy = BuildStrategy()
    >>> strategy.enable_inplace, strategy.reduce_strategy is BuildStrategy.ReduceStrategy.AllReduce
    (True, True)
    """

    ReduceStrategy = ReduceStrategy
    GradientScaleStrategy = GradientScaleStrategy
    _defaults = MappingProxyType(
        {
            "async_mode": False,
            "cache_runtime_context": False,
            "debug_graphviz_path": "",
            "enable_auto_fusion": False,
            "enable_backward_optimizer_op_deps": True,
            "enable_inplace": True,
            "enable_sequential_execution": False,
            "fuse_all_optimizer_ops": False,
            "fuse_all_reduce_ops": True,
            "fuse_bn_act_ops": False,
            "fuse_broadcast_ops": True,
            "fuse_elewise_add_act_ops": False,
            "fuse_relu_depthwise_conv": False,
            "gradient_scale_strategy": GradientScaleStrategy.CoeffNumDevice,
            "hierarchical_allreduce_inter_nranks": 0,
            "is_distribution": False,
            "memory_optimize": None,
            "mkldnn_enabled_op_types": set(),
            "nccl_comm_num": 1,
            "num_trainers": 1,
            "reduce_strategy": ReduceStrategy.AllReduce,
            "remove_unnecessary_lock": True,
            "sync_batch_norm": False,
            "trainer_id": 0,
            "trainers_endpoints": [],
            "use_hierarchical_allreduce": False,
        }
    )


class ExecutionStrategy(_Strategy):
    """How the reference runs the graph of a CompiledProgram."""

    _defaults = MappingProxyType(
        {
            "_dry_run": False,
            "allow_op_delay": False,
            "num_iteration_per_drop_scope": 100,
            "num_iteration_per_run": 1,
            "num_threads": 0,
            "use_cuda": True,
            "use_experimental_executor": True,
            "use_thread_barrier": False,
        }
    )


class CompiledProgram:
    """A program for `Executor.run`, with strategies; it runs as the program itself does.

    Raises TypeError for what is no Program.
    """

    def __init__(
        self, program_or_graph: Program, build_strategy: BuildStrategy | None = None
    ) -> None:
        if not isinstance(program_or_graph, Program):
            kind = type(program_or_graph).__name__
            raise TypeError(f"CompiledProgram takes a fluid.Program, but received {kind}")
        self.program = program_or_graph
        self._build_strategy = build_strategy or BuildStrategy()
        self._exec_strategy = ExecutionStrategy()
        self._parallel = False
        self._places: list[Place] | None = None

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Place] | Place | None = None,
    ) -> CompiledProgram:
        """Let it run on `places`, or on as many as `CPU_NUM` says; returns itself.

        More than one is refused when it runs. Raises AssertionError where it was called before,
        and without `loss_name` for a program that computes gradients; ValueError where the
        program has no variable of that name, or `share_vars_from` was not called so.
        """
        if self._parallel:
            raise AssertionError("Already compiled with parallel, cannot be recompiled.")
        if loss_name is not None and loss_name not in self.program.global_block().vars:
            hint = did_you_mean(loss_name, self.program.global_block().vars)
            raise ValueError(f"loss_name: no variable {loss_name!r} in the program; {hint}")
        if loss_name is None and _has_backward(self.program):
            raise AssertionError("the program computes gradients: pass the loss_name they are of")
        if share_vars_from is not None and not share_vars_from._parallel:
            raise ValueError("share_vars_from is a CompiledProgram that runs data parallel")
        self._parallel = True
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy or self._exec_strategy
        self._places = None if places is None else _listed(places)
        return self

    def program_on(self, place: Place) -> Program:
        """The program to run on an executor's place.

        Raises AssertionError for places of another kind, PlaceError for several, and ValueError
        for strategies that ask for other numbers than those of the program.
        """
        places = (self._places or cpu_places()) if self._parallel else [place]
        if any(type(each) is not type(place) for each in places):
            raise AssertionError(f"Place type not match: the executor is on {place}, not {places}")
        if len(places) > 1:
            raise PlaceError(
                f"this program is to run on {len(places)} devices, and only runs on one come with "
                "this version",
                hint="pass places=fluid.cpu_places(1), or set CPU_NUM=1 in the environment",
            )
        _expect_plain(self._build_strategy, self._exec_strategy)
        return self.program


def _has_backward(program: Program) -> bool:
    return any(op.role & OpRole.BACKWARD for op in program.global_block().ops)


def _listed(places: Sequence[Place] | Place) -> list[Place]:
    found = [*places] if isinstance(places, list | tuple) else [places]
    for place in found:
        if not isinstance(place, PLACES):
            raise TypeError(f"places are CPUPlace() or CUDAPlace(i), not {type(place).__name__}")
    return found


def _expect_plain(build: BuildStrategy, execution: ExecutionStrategy) -> None:
    """ValueError for what would not run as the program by itself."""
    if build.gradient_scale_strategy is GradientScaleStrategy.Customized:
        raise ValueError(
            "gradient_scale_strategy Customized is for several devices: on one, the gradient of "
            "the loss is 1, unless append_backward is given another"
        )
    if build.num_trainers != 1:
        raise ValueError(f"num_trainers is {build.num_trainers}: only one trains in this version")
    if execution.num_iteration_per_run != 1:
        count = execution.num_iteration_per_run
        raise ValueError(f"num_iteration_per_run is {count}: call Executor.run as often instead")
