"""Settings of data-parallel runs: `BuildStrategy` and `ExecutionStrategy` (fluid_spec E.5).

Names and defaults are those of Paddle 1.8.5. Every field either acts, or is accepted so that old
scripts run, and has no effect; the docstrings say which.
"""

from __future__ import annotations

from copy import copy
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

from compiler.errors import did_you_mean
from fluid.data_parallel.pass_builder import PassBuilder

__all__ = ["BuildStrategy", "ExecutionStrategy", "GradientScaleStrategy", "ReduceStrategy"]


class _Strategy:
    """Settings by name, each with a default; AttributeError for an unknown name."""

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
    """Where parameters are updated: on every device, or each on the one device that owns it."""

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(Enum):
    """What the gradient of the loss is on each device.

    CoeffNumDevice: 1 / (devices · trainers). One: 1. Customized: what the user feeds as
    `<loss>@GRAD`.
    """

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class BuildStrategy(_Strategy):
    """How a data-parallel program is built.

    Fields that act:

    - `reduce_strategy`: AllReduce sums each gradient on all devices, and all update all parameters.
      Reduce sums each gradient on the device that owns the parameter, which updates it and
      broadcasts it; optimizer state is held by the owner only. The numbers are equal. With
      several trainers all of them must read such state at once, for example to save it.
    - `gradient_scale_strategy`: see `GradientScaleStrategy`.
    - `sync_batch_norm`: batch norms use the mean and variance over all devices.
    - `fuse_all_reduce_ops`: gradients are summed in buckets; False sums each one by itself.
    - `enable_sequential_execution`: as `fuse_all_reduce_ops` False; each sum is complete before
      the next op runs.
    - `debug_graphviz_path`: at the first run the program with its collectives is written to this
      file, as Graphviz text.
    - `num_trainers`, `trainer_id`: how many processes (nodes) train and which one this is; each
      has as many devices as this one. They meet where the startup program of a transpiled program
      (`DistributeTranspiler`, mode nccl2) says.
    - `trainers_endpoints`: where they meet, host:port of each trainer, unless the program was
      transpiled.
    - `nccl_comm_num`: with several trainers, gradients take turns on so many rings, each with a
      process group of its own; here or by the transpiler.
    - `use_hierarchical_allreduce`: sums first in groups of `hierarchical_allreduce_inter_nranks`
      trainers, then between these; here or by the transpiler.

    Fields that are accepted and have no effect, since the compiler decides by itself what to fuse,
    where memory is reused and in which order ops run, with equal numbers: `async_mode`,
    `cache_runtime_context`, `enable_auto_fusion`, `enable_backward_optimizer_op_deps`,
    `enable_inplace`, `fuse_all_optimizer_ops`, `fuse_bn_act_ops`, `fuse_broadcast_ops`,
    `fuse_elewise_add_act_ops`, `fuse_relu_depthwise_conv`, `is_distribution`, `memory_optimize`,
    `mkldnn_enabled_op_types`, `remove_unnecessary_lock`.

    >>> strategy = BuildStrategy()
    >>> strategy.enable_inplace, strategy.reduce_strategy is BuildStrategy.ReduceStrategy.AllReduce
    (True, True)
    """

    ReduceStrategy = ReduceStrategy
    GradientScaleStrategy = GradientScaleStrategy
    _defaults = MappingProxyType(
        {
            "_pass_builder": None,
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

    def _finalize_strategy_and_create_passes(self) -> PassBuilder:
        """The passes that build the program, as a list that may be edited before the first run."""
        if self._pass_builder is None:
            self._pass_builder = PassBuilder.of(self)
        return self._pass_builder


class ExecutionStrategy(_Strategy):
    """How a data-parallel program is run.

    Fields that act:

    - `num_iteration_per_run`: steps for each call of `run`, on the same feed; the fetches are
      those of the last one. A program with readers takes a new batch for each step.
    - `_dry_run`: `run` computes nothing and returns an empty array for each fetch.

    Fields that are accepted and have no effect: `num_threads` and `use_thread_barrier` (ops of one
    device run one after the other), `allow_op_delay`, `use_experimental_executor`, `use_cuda` (the
    places decide), `num_iteration_per_drop_scope` (temporaries lie in one arena of fixed size,
    which is reused by every step; `ParallelExecutor.drop_local_exe_scopes` frees it).
    """

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
