"""Data parallelism in eager mode: the environment of a process, and `DataParallel`."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from compiler.support.dataclass import dataclass
from compiler.support.settings.paddle import (
    PADDLE_CURRENT_ENDPOINT,
    PADDLE_TRAINER_ENDPOINTS,
    PADDLE_TRAINER_ID,
    PADDLE_TRAINERS_NUM,
)
from fluid.dygraph.base import no_grad, to_variable
from fluid.dygraph.layers import Layer
from fluid.eager import traces
from fluid.eager.nodes import SCOPE
from fluid.executor import Executor
from fluid.framework import (
    Parameter,
    Program,
    Variable,
    default_main_program,
    in_dygraph_mode,
)
from fluid.layers import collective, nn
from fluid.layers.mathematics.shapes import concat
from fluid.running.places import selected_gpus

__all__ = ["DataParallel", "Env", "ParallelEnv", "ParallelStrategy", "prepare_context"]


class ParallelEnv:
    """The environment of a process of `paddle.distributed.launch`; one trainer without it."""

    def __init__(self) -> None:
        self._nranks = PADDLE_TRAINERS_NUM.read()
        self._local_rank = PADDLE_TRAINER_ID.read()
        self._dev_id = next(iter(selected_gpus()), 0)
        self._trainer_endpoints = list(PADDLE_TRAINER_ENDPOINTS.read())
        self._current_endpoint = PADDLE_CURRENT_ENDPOINT.read()

    @property
    def nranks(self) -> int:
        """The number of trainers."""
        return self._nranks

    @property
    def local_rank(self) -> int:
        """The number of this trainer, from 0."""
        return self._local_rank

    @property
    def dev_id(self) -> int:
        """The number of its GPU."""
        return self._dev_id

    @property
    def current_endpoint(self) -> str:
        """The endpoint of this trainer."""
        return self._current_endpoint

    @property
    def trainer_endpoints(self) -> list[str]:
        """The endpoints of all trainers."""
        return self._trainer_endpoints


Env = ParallelEnv


@dataclass
class ParallelStrategy:
    """The trainers of a job, as `prepare_context` sets them."""

    nranks: int = 1
    local_rank: int = 0
    trainer_endpoints: list[str] = field(default_factory=list[str])
    current_endpoint: str = ""


def prepare_context(strategy: ParallelStrategy | None = None) -> ParallelStrategy:
    """Connect the trainers of a job, those of the environment by default; returns them.

    A single trainer connects to nobody. Raises AssertionError outside eager mode if there are
    several.
    """
    if strategy is None:
        env = ParallelEnv()
        strategy = ParallelStrategy(
            env.nranks, env.local_rank, env.trainer_endpoints, env.current_endpoint
        )
    if strategy.nranks < 2:
        return strategy
    assert in_dygraph_mode(), "dygraph.prepare_context should be used with dygraph mode."
    program = Program()
    block = program.global_block()
    ring = block.create_var(name="eager_ring", persistable=True)
    others = [e for e in strategy.trainer_endpoints if e != strategy.current_endpoint]
    address = {"endpoint": strategy.current_endpoint, "other_endpoints": others}
    rank = {"rank": strategy.local_rank}
    block.append_op("c_gen_nccl_id", outputs={"Out": ring}, attrs=address | rank)
    ranks = {"nranks": strategy.nranks, "ring_id": 0}
    block.append_op("c_comm_init", inputs={"X": ring}, attrs=ranks | rank)
    Executor(traces.place()).run(program, scope=SCOPE)
    return strategy


class DataParallel(Layer):
    """A layer that several trainers train on different data; of one trainer, the layer itself.

    After `backward` of the loss that `scale_loss` divides by the number of trainers, call
    `apply_collective_grads`, which sums the gradients of all trainers.
    """

    def __init__(self, layers: Layer, strategy: ParallelStrategy | None = None) -> None:
        super().__init__(layers.full_name() + "_data_parallel")
        self._layers = layers
        self._strategy = prepare_context() if strategy is None else strategy

    def forward(self, *inputs: object, **kwargs: object) -> Any:
        """Call the layer."""
        return self._layers(*inputs, **kwargs)

    def scale_loss(self, loss: Variable) -> Variable:
        """Return the loss divided by the number of trainers."""
        if not self._is_data_parallel_mode():
            return loss
        return loss / to_variable(np.array([self._strategy.nranks], "float32"))

    @no_grad
    def apply_collective_grads(self) -> None:
        """Replace the gradients of the parameters by their sums over all trainers."""
        if not self._is_data_parallel_mode():
            return
        for param in self._layers.parameters():
            gradient: Any = getattr(param, "gradient_variable", None)
            if param.trainable and gradient is not None:
                collective._c_allreduce(gradient, gradient, use_calc_stream=True)  # pyright: ignore[reportPrivateUsage] - a name of Paddle

    def _coalesce_tensors(self, var_groups: Mapping[int, Sequence[Variable]]) -> list[list[Any]]:
        """Return for each group its variables as one of rank 1, the group, and their shapes."""
        coalesced: list[list[Any]] = []
        for group in var_groups.values():
            flat = [nn.reshape(var, [prod(var.shape)]) for var in group]
            coalesced.append([concat(flat), group, [var.shape for var in group]])
        return coalesced

    def _split_tensors(self, coalesced_grads_and_grad_vars: Sequence[Sequence[Any]]) -> None:
        """Set the variables of groups to the parts of what `_coalesce_tensors` returned."""
        block = default_main_program().current_block()
        for coalesced, group, shapes in coalesced_grads_and_grad_vars:
            attrs = {"sections": [prod(shape) for shape in shapes], "axis": 0}
            block.append_op("split", {"X": coalesced}, {"Out": group}, attrs)
            for var, shape in zip(group, shapes, strict=True):
                self._reshape_inplace(var, shape)

    def _reshape_inplace(self, x: Variable, shape: Sequence[int]) -> None:
        """Set a variable to its value in another shape."""
        block = default_main_program().current_block()
        before = block.create_temporary("tmp", x.dtype)
        outputs = {"Out": x, "XShape": before}
        block.append_op("reshape2", {"X": x}, outputs, {"shape": list(shape)})

    def _is_data_parallel_mode(self) -> bool:
        return self._strategy.nranks > 1

    def state_dict(
        self,
        destination: MutableMapping[str, Parameter] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
    ) -> MutableMapping[str, Parameter]:
        """Return the state of the layer itself."""
        return self._layers.state_dict(destination, include_sublayers, structured_name_prefix)

    def set_dict(
        self,
        stat_dict: Mapping[str, object],
        include_sublayers: bool = True,
        use_structured_name: bool = True,
    ) -> None:
        """Set the state of the layer itself."""
        self._layers.set_dict(stat_dict, include_sublayers, use_structured_name)

    load_dict = set_dict
