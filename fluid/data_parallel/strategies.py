"""Settings of data-parallel runs: `BuildStrategy` and `ExecutionStrategy`.

Names and defaults are those of Paddle 1.8.5. Fields without an effect are accepted so that old
scripts run; the docstrings list which have one.
"""

from __future__ import annotations

from copy import copy
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from compiler.errors import did_you_mean
from fluid.data_parallel.pass_builder import PassBuilder

__all__ = ["BuildStrategy", "ExecutionStrategy", "GradientScaleStrategy", "ReduceStrategy"]


class _Strategy:
    """Settings by name, each with a default; unknown names raise AttributeError."""

    _defaults: ClassVar[MappingProxyType[str, object]]

    def __init_subclass__(cls) -> None:
        for name, value in cls._defaults.items():
            setattr(cls, name, value)

    def __init__(self) -> None:
        for name, value in self._defaults.items():
            setattr(self, name, copy(value))

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._defaults:
            hint = did_you_mean(name, self._defaults)
            raise AttributeError(f"{type(self).__name__} has no {name!r}; {hint}".rstrip("; "))
        super().__setattr__(name, value)


class ReduceStrategy(Enum):
    """Which devices update parameters: all of them, or for each parameter its owner."""

    AllReduce = 0
    Reduce = 1


class GradientScaleStrategy(Enum):
    """Scale of the loss gradient on each device.

    CoeffNumDevice: 1 / (devices · trainers). One: 1. Customized: the value the user feeds as
    `<loss>@GRAD`.
    """

    CoeffNumDevice = 0
    One = 1
    Customized = 2


class BuildStrategy(_Strategy):
    """How a data-parallel program is built.

    Fields with an effect:

    - `reduce_strategy`: AllReduce sums each gradient on all devices, and all update all parameters.
      Reduce sums each gradient on the device that owns the parameter, which updates it and
      broadcasts it; optimizer state is held by the owner only. The results are equal. With
      several trainers all of them must read such state at once, for example to save it.
    - `gradient_scale_strategy`: see `GradientScaleStrategy`.
    - `sync_batch_norm`: batch norms use the mean and variance over all devices.
    - `fuse_all_reduce_ops`: gradients are reduced in buckets; False reduces each one separately.
    - `enable_sequential_execution`: as `fuse_all_reduce_ops` False; each reduction is complete
      before the next op runs.
    - `debug_graphviz_path`: at the first run the program with its collectives is written to this
      file, as Graphviz text.
    - `num_trainers`, `trainer_id`: the number of trainers (nodes) and the index of this one; each
      has the same number of devices. Their rendezvous endpoint is in the startup program of a
      transpiled program (`DistributeTranspiler`, mode nccl2).
    - `trainers_endpoints`: host:port of each trainer for the rendezvous, unless the program was
      transpiled.
    - `nccl_comm_num`: with several trainers, the number of rings (process groups) over which the
      all-reduces are distributed round-robin; here or in the transpiler.
    - `use_hierarchical_allreduce`: reduces first in groups of `hierarchical_allreduce_inter_nranks`
      trainers, then between groups; here or in the transpiler.

    Fields without an effect, since the compiler decides about fusion, memory reuse and the
    schedule, with equal results: `async_mode`, `cache_runtime_context`, `enable_auto_fusion`,
    `enable_backward_optimizer_op_deps`, `enable_inplace`, `fuse_all_optimizer_ops`,
    `fuse_bn_act_ops`, `fuse_broadcast_ops`, `fuse_elewise_add_act_ops`, `fuse_relu_depthwise_conv`,
    `is_distribution`, `memory_optimize`, `mkldnn_enabled_op_types`, `remove_unnecessary_lock`.

    >>> strategy = BuildStrategy()
    >>> strategy.enable_inplace, strategy.reduce_strategy is BuildStrategy.ReduceStrategy.AllReduce
    (True, True)
    """

    ReduceStrategy = ReduceStrategy
    GradientScaleStrategy = GradientScaleStrategy

    _pass_builder: PassBuilder | None
    async_mode: bool
    cache_runtime_context: bool
    debug_graphviz_path: str
    enable_auto_fusion: bool
    enable_backward_optimizer_op_deps: bool
    enable_inplace: bool
    enable_sequential_execution: bool
    fuse_all_optimizer_ops: bool
    fuse_all_reduce_ops: bool
    fuse_bn_act_ops: bool
    fuse_broadcast_ops: bool
    fuse_elewise_add_act_ops: bool
    fuse_relu_depthwise_conv: bool
    gradient_scale_strategy: GradientScaleStrategy
    hierarchical_allreduce_inter_nranks: int
    is_distribution: bool
    memory_optimize: bool | None
    mkldnn_enabled_op_types: set[str]
    nccl_comm_num: int
    num_trainers: int
    reduce_strategy: ReduceStrategy
    remove_unnecessary_lock: bool
    sync_batch_norm: bool
    trainer_id: int
    trainers_endpoints: list[str]
    use_hierarchical_allreduce: bool
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
            "mkldnn_enabled_op_types": set[str](),
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

    def finalized_passes(self) -> PassBuilder:
        """The passes that build the program, as a list that may be edited before the first run."""
        if self._pass_builder is None:
            self._pass_builder = PassBuilder.of(self)
        return self._pass_builder

    _finalize_strategy_and_create_passes = finalized_passes


class ExecutionStrategy(_Strategy):
    """How a data-parallel program is run.

    Fields with an effect:

    - `num_iteration_per_run`: steps per call of `run`, on the same feed; the fetches are
      those of the last one. A program with readers reads a new batch for each step.
    - `_dry_run`: `run` computes nothing and returns an empty array for each fetch.

    Fields without an effect: `num_threads` and `use_thread_barrier` (ops of one device run
    sequentially), `allow_op_delay`, `use_experimental_executor`, `use_cuda` (the places decide),
    `num_iteration_per_drop_scope` (temporaries are in one arena of fixed size, which is reused by
    every step; `ParallelExecutor.drop_local_exe_scopes` frees it).
    """

    _dry_run: bool
    allow_op_delay: bool
    num_iteration_per_drop_scope: int
    num_iteration_per_run: int
    num_threads: int
    use_cuda: bool
    use_experimental_executor: bool
    use_thread_barrier: bool
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

    @property
    def is_dry_run(self) -> bool:
        """Whether `run` computes nothing."""
        return self._dry_run
