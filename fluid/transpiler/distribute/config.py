"""Settings of `DistributeTranspiler`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from compiler.support.settings.paddle import (
    FLAGS_rpc_get_thread_num,
    FLAGS_rpc_prefetch_thread_num,
    FLAGS_rpc_send_thread_num,
)
from fluid.distributed.sharding import DistributedMode
from fluid.framework import Variable
from fluid.transpiler.distribute.server_settings import FIELDS, server_settings
from fluid.transpiler.ps_dispatcher import PSDispatcher, RoundRobin

__all__ = [
    "DistributeTranspilerConfig",
    "DistributedMode",
    "ServerRuntimeConfig",
    "check_config",
]

MODES = ("pserver", "nccl2", "collective")
LEAST_BLOCK = 8192
"""The smallest `min_block_size`, in elements: smaller messages waste bandwidth."""


class DistributeTranspilerConfig:
    """Settings of a distributed job.

    `slice_var_up`: whether parameters are cut into blocks of at least `min_block_size` elements.
    `split_method`: the class that assigns blocks to servers, RoundRobin by default, or HashName.
    `mode`: "pserver", "nccl2" or "collective"; for the last, `collective_mode` is "grad_allreduce",
    "local_sgd" or "single_process_multi_thread". `sync_mode`, `runtime_split_send_recv`,
    `half_async`, `completely_not_async`, `geo_sgd_mode`: how trainers exchange with servers.
    `enable_dc_asgd`: compensate stale gradients on the servers. `wait_port`: whether to wait until
    the servers accept connections; in the other modes the startup program waits for all trainers,
    `FLAGS_rpc_deadline` at most. `nccl_comm_num`, `use_hierarchical_allreduce`,
    `hierarchical_allreduce_inter_nranks`: the number of rings, and whether they are two levels
    deep, with so many ranks in a lower one. `params_on_servers`: the names of the parameters that
    servers hold and update, or a predicate on a Parameter; None for all. Trainers update the others
    by their own gradients. Release 1.8.5 has no such field. `ps_policy` and the other `ps_` fields,
    this compiler's own: how servers treat lost trainers, snapshots, deadlines, token and TLS; see
    docs/parameter_servers.md. None is the default there.
    """

    slice_var_up: bool = True
    split_method: type[PSDispatcher] | None = None
    min_block_size: int = LEAST_BLOCK
    enable_dc_asgd: bool = False
    mode: str = "pserver"
    print_log: bool = False
    wait_port: bool = True
    half_async: bool = False
    completely_not_async: bool = False
    geo_sgd_mode: bool = False
    geo_sgd_need_push_nums: int = 100
    nccl_comm_num: int = 1
    use_hierarchical_allreduce: bool = False
    hierarchical_allreduce_inter_nranks: int = 0
    collective_mode: str | None = None
    params_on_servers: Collection[str] | Callable[[Variable], bool] | None = None
    ps_policy: str | None = None
    ps_heartbeat_seconds: float | None = None
    ps_lost_seconds: float | None = None
    ps_return_seconds: float | None = None
    ps_reconnect_seconds: float | None = None
    ps_deadline_seconds: float | None = None
    ps_snapshot_dir: str | None = None
    ps_save_dir: str | None = None
    ps_snapshot_steps: int | None = None
    ps_token: str | None = None
    ps_cert: str | None = None
    ps_key: str | None = None
    ps_ca: str | None = None
    _sync_mode: bool = True
    _runtime_split_send_recv: bool = False

    def __init__(self) -> None:
        pass

    def dispatcher(self, endpoints: Sequence[str]) -> PSDispatcher:
        """A new dispatcher of `split_method`."""
        method = RoundRobin if self.split_method is None else self.split_method
        return method(endpoints)

    def server_fields(self) -> dict[str, object]:
        """The fields of `server_settings`."""
        return {name: getattr(self, name) for name in FIELDS}

    @property
    def runtime_split_send_recv(self) -> bool:
        """Whether `send` and `recv` cut and join blocks themselves, in a communicator.

        Setting it raises ValueError for None, and for True while `sync_mode` is True.
        """
        return self._runtime_split_send_recv

    @runtime_split_send_recv.setter
    def runtime_split_send_recv(self, value: bool) -> None:
        _check_choice("runtime_split_send_recv", value, "sync_mode", self._sync_mode)
        self._runtime_split_send_recv = value

    @property
    def sync_mode(self) -> bool:
        """Whether all trainers make a step together.

        Setting it raises ValueError for None, and for True while `runtime_split_send_recv` is True.
        """
        return self._sync_mode

    @sync_mode.setter
    def sync_mode(self, value: bool) -> None:
        _check_choice("sync_mode", value, "runtime_split_send_recv", self._runtime_split_send_recv)
        self._sync_mode = value

    @property
    def distributed_mode(self) -> DistributedMode:
        """The mode of the servers that follows from these settings, as in release 1.8.5."""
        if self.geo_sgd_mode:
            return DistributedMode.GEO
        if self.sync_mode or self.completely_not_async:
            return DistributedMode.SYNC
        return DistributedMode.ASYNC if self.runtime_split_send_recv else DistributedMode.HALF_ASYNC


def _check_choice(name: str, value: object, other: str, other_value: bool) -> None:
    """ValueError for None, and where both of two settings that exclude each other are True."""
    if value is None:
        raise ValueError(f"{name} can't be None: set True or False")
    if value and other_value:
        raise ValueError(
            f"{name} and {other} exclude each other, and {other} is True: set it to False first"
        )


def check_config(config: object) -> DistributeTranspilerConfig:
    """The settings, checked, with `split_method` filled in.

    Raises TypeError for what is no config and for a `split_method` that is no subclass of
    PSDispatcher, ValueError for an unknown `mode` and a `min_block_size` below 8192; both for the
    fields of `server_settings`.
    """
    if not isinstance(config, DistributeTranspilerConfig):
        kind = type(config).__name__
        raise TypeError(f"config must be a DistributeTranspilerConfig, not {kind}")
    if config.split_method is None:
        config.split_method = RoundRobin
    _expect_dispatcher(config.split_method)
    if config.mode not in MODES:
        raise ValueError(f"config.mode must be one of {', '.join(MODES)}, but is {config.mode!r}")
    if config.min_block_size < LEAST_BLOCK:
        raise ValueError(
            f"config.min_block_size must be at least {LEAST_BLOCK} elements, "
            f"but is {config.min_block_size}"
        )
    server_settings(config.server_fields())
    return config


def _expect_dispatcher(method: object) -> None:
    """TypeError for a `split_method` that is no subclass of PSDispatcher."""
    if not (isinstance(method, type) and issubclass(method, PSDispatcher)):
        raise TypeError(
            "config.split_method must be a class derived from PSDispatcher, such as RoundRobin or "
            f"HashName, not {method!r}"
        )


class ServerRuntimeConfig:
    """Numbers of threads of a server, from the environment: 12 each unless given.

    Calls of all kinds are answered by one pool. It has as many threads as the three numbers add up
    to, and at least 4 for each trainer and 16 more, which open streams need.
    """

    def __init__(self) -> None:
        self._rpc_send_thread_num = FLAGS_rpc_send_thread_num.read()
        self._rpc_get_thread_num = FLAGS_rpc_get_thread_num.read()
        self._rpc_prefetch_thread_num = FLAGS_rpc_prefetch_thread_num.read()

    def attributes(self) -> dict[str, int]:
        """The numbers as attributes of `listen_and_serv`."""
        return {
            "rpc_get_thread_num": self._rpc_get_thread_num,
            "rpc_send_thread_num": self._rpc_send_thread_num,
            "rpc_prefetch_thread_num": self._rpc_prefetch_thread_num,
        }
