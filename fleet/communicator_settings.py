"""Settings of a trainer's communicator, which exchanges with servers concurrently with steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from compiler.support.settings.paddle import (
    CPU_NUM,
    FLAGS_communicator_independent_recv_thread,
    FLAGS_communicator_is_sgd_optimizer,
    FLAGS_communicator_max_merge_var_num,
    FLAGS_communicator_min_send_grad_num_before_recv,
    FLAGS_communicator_send_queue_size,
    FLAGS_communicator_send_wait_times,
    FLAGS_communicator_thread_pool_size,
    FLAGS_rpc_deadline,
    FLAGS_rpc_retry_times,
)
from compiler.support.settings.setting import Setting
from fluid.transpiler.distribute.config import DistributedMode

__all__ = ["TrainerRuntimeConfig", "device_count"]

SETTINGS: tuple[Setting[Any], ...] = (
    FLAGS_communicator_max_merge_var_num,
    FLAGS_communicator_send_queue_size,
    FLAGS_communicator_independent_recv_thread,
    FLAGS_communicator_min_send_grad_num_before_recv,
    FLAGS_communicator_thread_pool_size,
    FLAGS_communicator_send_wait_times,
    FLAGS_communicator_is_sgd_optimizer,
    FLAGS_rpc_deadline,
    FLAGS_rpc_retry_times,
)
AS_MANY_BY_DEFAULT = (
    "communicator_max_merge_var_num",
    "communicator_send_queue_size",
    "communicator_min_send_grad_num_before_recv",
)
"""Settings that are CPU_NUM unless they are set."""
SYNCHRONOUS_FLAGS = (
    "communicator_max_merge_var_num",
    "communicator_send_wait_times",
    "communicator_thread_pool_size",
    "communicator_send_queue_size",
)
GEO_FLAGS = ("communicator_thread_pool_size", "communicator_send_wait_times")
AS_MANY_AS_THREADS = ("communicator_max_merge_var_num", "communicator_send_queue_size")
"""Settings that must equal CPU_NUM when all threads of a trainer make a step together."""


class TrainerRuntimeConfig:
    """Settings of a trainer's communicator, as text by name in `runtime_configs`.

    Each is read from the environment variable `FLAGS_<name>`, with the defaults of release 1.8.5;
    several are CPU_NUM by default. Those with an effect:

    - `communicator_max_merge_var_num`: maximum number of gradients of one variable that are merged.
    - `communicator_send_queue_size`: maximum number of queued gradients of one variable; a step
      blocks while the queue is full.
    - `rpc_deadline`: milliseconds that `init_worker` waits for the servers.

    The others are accepted without effect: one thread sends queued gradients as soon as it is free,
    merged gradients are their mean, and parameters are received in every step.
    """

    def __init__(self) -> None:
        self.mode: DistributedMode | None = None
        defaults: dict[str, int] = dict.fromkeys(AS_MANY_BY_DEFAULT, int(device_count()))
        named = {each.name.removeprefix("FLAGS_"): each for each in SETTINGS}
        self.runtime_configs: dict[str, str | float] = {
            name: str(int(each.read_or(defaults.get(name, each.default))))
            for name, each in named.items()
        }

    @property
    def deadline(self) -> float:
        """`rpc_deadline` in seconds. Raises ValueError if it is not a positive number."""
        text = str(self.runtime_configs["rpc_deadline"])
        if not text.isdecimal() or int(text) == 0:
            raise ValueError(f"rpc_deadline must be milliseconds, but is {text!r}")
        return int(text) / 1000

    def get_communicator_flags(self) -> dict[str, str]:
        """The settings that a communicator of this mode reads, as text.

        In synchronous and half-asynchronous mode, queues and merges must have the size CPU_NUM:
        other values are replaced, with a warning. Raises ValueError for an unknown mode.
        """
        flags = {name: str(self.runtime_configs[name]) for name in self._names()}
        if self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            for name in AS_MANY_AS_THREADS:
                flags[name] = self._expect_threads(name, flags[name])
        return flags

    def _names(self) -> tuple[str, ...]:
        if self.mode is None or self.mode == DistributedMode.ASYNC:
            return tuple(self.runtime_configs)
        if self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            return SYNCHRONOUS_FLAGS
        if self.mode == DistributedMode.GEO:
            return GEO_FLAGS
        raise ValueError(f"Unsupported Mode {self.mode!r}: expected a DistributedMode")

    def _expect_threads(self, name: str, value: str) -> str:
        threads = device_count()
        if value != threads:
            warnings.warn(
                f"in sync and half_async mode {name} must equal CPU_NUM, {threads}, but is "
                f"{value}; {threads} is used",
                stacklevel=3,
            )
        return threads

    def display(self, configs: Mapping[str, object]) -> str:
        """Format settings as a table."""
        lines = [f"{'TrainerRuntimeConfig Overview':^45s}{'Value':<5s}", "-" * 50]
        lines += [f"{name:<45s}{value!s:<5s}" for name, value in configs.items()]
        return "\n".join(["", "=" * 50, *lines, "=" * 50, ""])

    def __repr__(self) -> str:
        return self.display(self.get_communicator_flags())


def device_count() -> str:
    """CPU_NUM, 1 unless set. Raises ValueError naming the variable."""
    return str(CPU_NUM.read() or 1)
