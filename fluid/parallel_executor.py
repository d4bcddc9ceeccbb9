"""`fluid.ParallelExecutor`: the executor of release 1.0 for data-parallel runs, on one device.

It is a `CompiledProgram` and an `Executor` in one; what it says of several devices is theirs to
say. Behaviour: fluid_spec E.1 and E.3.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluid.executor import Executor, global_scope
from fluid.framework import Program, default_main_program
from fluid.places import cpu_places, cuda_places
from runtime.scope import Scope

__all__ = ["ParallelExecutor"]


class ParallelExecutor:
    """Runs one program on all devices, of which this version has one.

    `loss_name` is needed where the program computes gradients, `share_vars_from` says whose
    parameters a test program reads; `scope` is the global one unless given. `num_trainers` and
    `trainer_id`, where they are not 1 and 0, go before those of the build strategy.

    Raises AssertionError with `use_cuda`, which needs a GPU, and for gradients without a
    `loss_name`; TypeError where `share_vars_from` is no ParallelExecutor; ValueError for a loss
    that the program does not have.
    """

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        if share_vars_from is not None and not isinstance(share_vars_from, ParallelExecutor):
            kind = type(share_vars_from).__name__
            raise TypeError(f"share_vars_from must be a ParallelExecutor, not {kind}")
        self._places = cuda_places() if use_cuda else cpu_places()
        self._scope = global_scope() if scope is None else scope
        self._shared, self._has_run = share_vars_from, False
        strategy = build_strategy or BuildStrategy()
        _overwrite(strategy, num_trainers=(num_trainers, 1), trainer_id=(trainer_id, 0))
        program = default_main_program() if main_program is None else main_program
        self._program = CompiledProgram(program).with_data_parallel(
            loss_name, strategy, exec_strategy, places=self._places
        )
        self._executor = Executor(self._places[0])

    @property
    def device_count(self) -> int:
        """How many devices there are: as `CPU_NUM` in the environment says, or one."""
        return len(self._places)

    def run(
        self,
        fetch_list: Any,
        feed: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        feed_dict: Mapping[str, Any] | None = None,
        return_numpy: bool = True,
    ) -> list[Any]:
        """Run all ops of the program once; the values of `fetch_list`, as `Executor.run` has them.

        `feed` is a dict, or a list with one for each device. `feed_dict` is its old name.

        Raises ValueError for a list of another length, for a feed that is neither, and where
        `share_vars_from` has not run yet; TypeError for a list of anything but dicts; PlaceError
        for several devices; otherwise what `Executor.run` raises.
        """
        if self._shared is not None and not self._shared._has_run:
            raise ValueError("share_vars_from has not run yet, so it has no variables to share")
        found = self._executor.run(
            self._program,
            self._for_devices(_named(feed, feed_dict)),
            fetch_list,
            scope=self._scope,
            return_numpy=return_numpy,
        )
        self._has_run = True
        return found

    def drop_local_exe_scopes(self) -> None:
        """Do nothing: a run keeps no temporary variables. TypeError before the first run."""
        if not self._has_run:
            raise TypeError("drop_local_exe_scopes: this ParallelExecutor has not run yet")

    def _for_devices(self, feed: Any) -> Any:
        """The feed, found to be of a kind and length that fit the devices."""
        if feed is None or isinstance(feed, Mapping):
            return feed
        if not isinstance(feed, list | tuple):
            raise ValueError(f"feed must be a dict or a list of dicts, not {type(feed).__name__}")
        if len(feed) != self.device_count:
            count = self.device_count
            raise ValueError(f"feed is a list of {len(feed)}, but the number of devices is {count}")
        for each in feed:
            if not isinstance(each, Mapping):
                kind = type(each).__name__
                raise TypeError(f"Each element of feed list should be a dict, not {kind}")
        return list(feed)


def _overwrite(strategy: BuildStrategy, **values: tuple[int, int]) -> None:
    """Set fields to values that are not their defaults, with a note where that changes them."""
    for name, (value, default) in values.items():
        if value not in (default, before := getattr(strategy, name)):
            note = f"build_strategy.{name} was {before} and is now {value}, as it was passed"
            print(note, file=sys.stderr)
            setattr(strategy, name, value)


def _named(feed: Any, feed_dict: Any) -> Any:
    """The feed, under its name of today or, with a warning, its old one."""
    if feed_dict is None or feed is not None:
        return feed
    warnings.warn("feed_dict is deprecated: pass feed", DeprecationWarning, stacklevel=3)
    return feed_dict
