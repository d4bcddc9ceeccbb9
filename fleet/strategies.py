"""Strategies of training with parameter servers: sync, async, half-async, and GEO.

A strategy holds five settings: of the transpiler, of the trainers' communicator, of the servers,
and of how trainers build and execute their programs. Names, defaults and errors are those of
release 1.8.5 (`incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy`); a
config passed to a setter is copied, so no strategy changes an object of the user's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, ClassVar, TypeGuard, TypeVar

from compiler.errors import did_you_mean
from fleet.communicator_settings import TrainerRuntimeConfig, device_count
from fluid.compiler import BuildStrategy, ExecutionStrategy
from fluid.transpiler.distribute.config import (
    DistributedMode,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
)

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "ServerRuntimeConfig",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
    "strategy_for",
]


T = TypeVar("T")


class DistributedStrategy:
    """The settings of a job with parameter servers; use `StrategyFactory` to create one.

    Setters take an object of the setting's class, or a dict of its fields. They raise TypeError
    for anything else and ValueError for an unknown field.
    """

    mode: ClassVar[DistributedMode | None] = None
    """The synchronisation mode of servers."""

    def __init__(self) -> None:
        threads = int(device_count())
        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._execute_strategy = ExecutionStrategy()
        self._build_strategy = BuildStrategy()
        self._execute_strategy.num_threads = threads
        if threads > 1:
            self._build_strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
        self.debug_opt: dict[str, Any] | None = None
        if self.mode is not None:
            self._check_all()

    def _check_all(self) -> None:
        self.check_program_config()
        self.check_trainer_runtime_config()
        self.check_server_runtime_config()
        self.check_build_strategy()
        self.check_execute_strategy()

    def transpiler_config(self) -> DistributeTranspilerConfig:
        """A copy of the transpiler's settings, as a transpiler takes them."""
        return copy.copy(self._program_config)

    # ---- what is dumped for debugging

    def set_debug_opt(self, opt_info: dict[str, object] | None) -> None:
        """Set what a trainer dumps; fields are `dump_slot`, `dump_fields`, `dump_param`, …."""
        self.debug_opt = opt_info

    def get_debug_opt(self) -> dict[str, Any]:
        """What a trainer dumps, with defaults; empty if nothing was set."""
        options: object = self.debug_opt
        if not is_fields(options):
            return {}
        return {
            "dump_slot": bool(options.get("dump_slot", 0)),
            "dump_converter": str(options.get("dump_converter", "")),
            "dump_fields": options.get("dump_fields", []),
            "dump_file_num": options.get("dump_file_num", 16),
            "dump_fields_path": options.get("dump_fields_path", ""),
            "dump_param": options.get("dump_param", []),
        }

    # ---- the transpiler

    def get_program_config(self) -> DistributeTranspilerConfig:
        """The settings of the transpiler."""
        return self._program_config

    def set_program_config(self, config: DistributeTranspilerConfig | dict[str, object]) -> None:
        """Change settings of the transpiler."""
        self._program_config = _changed(self._program_config, config, "program_config")
        self.check_program_config()

    def check_program_config(self) -> None:
        """Set the fields of the transpiler that this mode requires."""
        raise _base_error("check_program_config")

    # ---- the trainers' communicator

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """The settings of the trainers' communicator."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: TrainerRuntimeConfig | dict[str, Any]) -> None:
        """Change settings of the trainers' communicator."""
        if isinstance(config, dict):
            settings = self._trainer_runtime_config.runtime_configs
            _expect_keys(config, settings, "TrainerRuntimeConfig")
            settings.update(config)
        else:
            changed = _changed(self._trainer_runtime_config, config, "trainer_runtime_config")
            changed.runtime_configs = dict(changed.runtime_configs)
            self._trainer_runtime_config = changed
        self.check_trainer_runtime_config()

    def check_trainer_runtime_config(self) -> None:
        """Set the mode of the trainers' communicator."""
        if self.mode is None:
            raise _base_error("check_trainer_runtime_config")
        self._trainer_runtime_config.mode = self.mode

    # ---- servers

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """The settings of servers."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: ServerRuntimeConfig | dict[str, object]) -> None:
        """Change settings of servers."""
        current = self._server_runtime_config
        self._server_runtime_config = _changed(current, config, "server_runtime_config")
        self.check_server_runtime_config()

    def check_server_runtime_config(self) -> None:
        """Does nothing: no mode has requirements on the servers' threads."""
        if self.mode is None:
            raise _base_error("check_server_runtime_config")

    # ---- trainers' programs

    def get_execute_strategy(self) -> ExecutionStrategy:
        """The execution settings of trainers."""
        return self._execute_strategy

    def set_execute_strategy(self, config: ExecutionStrategy | dict[str, object]) -> None:
        """Change the execution settings of trainers."""
        self._execute_strategy = _changed(self._execute_strategy, config, "execute_strategy")
        self.check_execute_strategy()

    def check_execute_strategy(self) -> None:
        """Set the execution fields that this mode requires."""
        if self.mode is None:
            raise _base_error("check_execute_strategy")
        if self.mode in (DistributedMode.SYNC, DistributedMode.HALF_ASYNC):
            self._execute_strategy.use_thread_barrier = True

    def get_build_strategy(self) -> BuildStrategy:
        """The build settings of trainers."""
        return self._build_strategy

    def set_build_strategy(self, config: BuildStrategy | dict[str, object]) -> None:
        """Change the build settings of trainers."""
        self._build_strategy = _changed(self._build_strategy, config, "build_strategy")
        self.check_build_strategy()

    def check_build_strategy(self) -> None:
        """Set the build fields that every mode requires."""
        if self.mode is None:
            raise _base_error("check_build_strategy")
        self._build_strategy.async_mode = True


class SyncStrategy(DistributedStrategy):
    """Synchronous steps of all trainers: servers update by the mean of their gradients."""

    mode = DistributedMode.SYNC

    def check_program_config(self) -> None:
        """Set the fields that identify this mode in release 1.8.5."""
        _set_mode(self._program_config, half_async=True, completely_not_async=True)

    def transpiler_config(self) -> DistributeTranspilerConfig:
        """A copy with barriers in the program itself; no communicator is used."""
        config = super().transpiler_config()
        config.runtime_split_send_recv = False
        config.sync_mode = True
        config.half_async = config.completely_not_async = False
        return config


class AsyncStrategy(DistributedStrategy):
    """Servers update by each gradient as it arrives; trainers do not wait."""

    mode = DistributedMode.ASYNC

    def check_program_config(self) -> None:
        """Set the fields that identify this mode in release 1.8.5."""
        _set_mode(self._program_config)


class HalfAsyncStrategy(DistributedStrategy):
    """As `AsyncStrategy`, but a trainer's step ends when its gradients are sent."""

    mode = DistributedMode.HALF_ASYNC

    def check_program_config(self) -> None:
        """Set the fields that identify this mode in release 1.8.5."""
        _set_mode(self._program_config, half_async=True)


class GeoStrategy(DistributedStrategy):
    """Trainers update their own parameters, and periodically send the deltas.

    `update_frequency` is the number of steps between two exchanges.
    """

    mode = DistributedMode.GEO

    def __init__(self, update_frequency: int = 100) -> None:
        _expect_int(update_frequency)
        if update_frequency < 1:
            raise ValueError(f"update_frequency must be at least 1 step, but is {update_frequency}")
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = update_frequency

    def check_program_config(self) -> None:
        """Set the fields that identify this mode in release 1.8.5."""
        _set_mode(self._program_config, geo_sgd_mode=True)


class StrategyFactory:
    """Creates strategies by name."""

    @staticmethod
    def create_sync_strategy() -> SyncStrategy:
        """Create a `SyncStrategy`."""
        return SyncStrategy()

    @staticmethod
    def create_half_async_strategy() -> HalfAsyncStrategy:
        """Create a `HalfAsyncStrategy`."""
        return HalfAsyncStrategy()

    @staticmethod
    def create_async_strategy() -> AsyncStrategy:
        """Create an `AsyncStrategy`."""
        return AsyncStrategy()

    @staticmethod
    def create_geo_strategy(update_frequency: int = 100) -> GeoStrategy:
        """Create a `GeoStrategy` that exchanges every `update_frequency` steps."""
        return GeoStrategy(update_frequency)


def strategy_for(config: DistributeTranspilerConfig) -> DistributedStrategy:
    """The strategy of transpiler settings, as release 1.8.5 derives it.

    `sync_mode` is synchronous; otherwise `geo_sgd_mode` and `half_async` decide if
    `runtime_split_send_recv` is set, and without that it is half-asynchronous.
    """
    if config.sync_mode:
        strategy: DistributedStrategy = SyncStrategy()
    elif not config.runtime_split_send_recv:
        strategy = HalfAsyncStrategy()
    elif config.geo_sgd_mode:
        strategy = GeoStrategy(config.geo_sgd_need_push_nums)
    elif config.completely_not_async:
        strategy = SyncStrategy()
    else:
        strategy = HalfAsyncStrategy() if config.half_async else AsyncStrategy()
    strategy.set_program_config(config)
    return strategy


def _expect_int(update_frequency: object) -> None:
    if isinstance(update_frequency, bool) or not isinstance(update_frequency, int):
        kind = type(update_frequency).__name__
        raise TypeError(f"update_frequency must be an int, a number of steps, not {kind}")


def _set_mode(config: DistributeTranspilerConfig, **fields: bool) -> None:
    config.sync_mode = False
    config.runtime_split_send_recv = True
    for name, value in fields.items():
        setattr(config, name, value)


def _changed(current: T, given: object, what: str) -> T:
    """Return a copy of settings of the same class, or the current ones updated from a dict."""
    kind = type(current)
    if is_fields(given):
        _expect_keys(given, [name for name in dir(current) if name[:2] != "__"], kind.__name__)
        changed = copy.copy(current)
        for name, value in given.items():
            setattr(changed, name, value)
        return changed
    if not isinstance(given, kind):
        raise TypeError(
            f"{what} only accept input type: dict or {kind.__name__}, not {type(given).__name__}"
        )
    return copy.copy(given)


def is_fields(given: object) -> TypeGuard[dict[str, object]]:
    """Whether settings are given as a dict of fields; `_expect_keys` checks their names."""
    return isinstance(given, dict)


def _expect_keys(given: Iterable[str], known: Iterable[str], kind: str) -> None:
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), list(known))
            raise ValueError(f"{kind} doesn't have key: {name}; {hint}".rstrip("; "))


def _base_error(method: str) -> NotImplementedError:
    return NotImplementedError(
        f"{method} must be implemented by derived class. You should use StrategyFactory to create "
        "DistributedStrategy."
    )
