"""`fluid.ParallelExecutor`: runs one program on several devices.

It combines a `CompiledProgram` with data parallelism and an `Executor`. Where releases differ:
docs/reference_behaviour.md, "Data-parallel runs".
"""

from __future__ import annotations

import sys
import warnings

from compiler.support.tracebacks import entry_point
from fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluid.executor import Executor, Results, global_scope
from fluid.framework import Program, default_main_program
from fluid.running.feeds import Feeds
from fluid.running.fetch_names import FetchList
from fluid.running.places import cpu_places, cuda_places
from runtime.tensors.scope import Scope

__all__ = ["ParallelExecutor"]


class ParallelExecutor:
    """Runs one program on all devices: GPUs, or `CPU_NUM` CPU processes.

    `loss_name` is required if the program computes gradients. `share_vars_from` is the executor
    whose variables a test program reads on every device; it must run first, and its scope is used.
    The default `scope` is the global one. `num_trainers` and `trainer_id`, unless 1 and 0, override
    those of the build strategy.

    Raises AssertionError with `use_cuda` without a GPU, and for gradients without a `loss_name`;
    TypeError unless `share_vars_from` is a ParallelExecutor; ValueError for a loss that the program
    does not have.
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
        _expect_executor(share_vars_from)
        self._places = cuda_places() if use_cuda else cpu_places()
        self._scope = global_scope() if scope is None else scope
        self._shared, self._has_run, self._is_dropped = share_vars_from, False, False
        if share_vars_from is not None:
            self._scope = share_vars_from._scope
            if scope is not None and scope is not self._scope:
                print("scope is ignored: that of share_vars_from is used", file=sys.stderr)
        strategy = build_strategy or BuildStrategy()
        _overwrite(strategy, num_trainers=(num_trainers, 1), trainer_id=(trainer_id, 0))
        program = default_main_program() if main_program is None else main_program
        shared = None if share_vars_from is None else share_vars_from._program
        self._program = CompiledProgram(program).with_data_parallel(
            loss_name, strategy, exec_strategy, shared, self._places
        )
        self._executor = Executor(self._places[0])

    @property
    def device_count(self) -> int:
        """The number of devices of this process."""
        return len(self._places)

    @entry_point
    def run(
        self,
        fetch_list: FetchList,
        feed: Feeds | None = None,
        feed_dict: Feeds | None = None,
        return_numpy: bool = True,
    ) -> Results:
        """Run all ops of the program once on every device; return the values of `fetch_list`.

        A dict is divided among the devices by rows: 3 rows on 2 devices are [0] and [1, 2]. A list
        has one dict for each device. Values of all devices are concatenated along axis 0, so that a
        loss of shape [1] has shape [devices]. `feed_dict` is the old name of `feed`.

        Raises ValueError for a list of another length, for a feed that is neither, for a name that
        the program does not have, and if `share_vars_from` has not run yet; TypeError for a list of
        anything but dicts; FeedError (EnforceNotMet) for fewer rows than devices; WorkerError and
        RankError, which name the device, for errors on another one.
        """
        if self._shared is not None and not self._shared._has_run:
            raise ValueError(
                "share_vars_from has not run yet, so it has no variables to share: it is not "
                "compiled and executed"
            )
        results = self._executor.run_parallel(
            self._program,
            _named(feed, feed_dict),
            fetch_list,
            self._scope,
            return_numpy,
            strict=True,
        )
        self._has_run, self._is_dropped = True, False
        return results

    def drop_local_exe_scopes(self) -> None:
        """Free the memory of temporaries on all devices; the next run allocates it again.

        Raises TypeError before the first run.
        """
        if not self._has_run:
            raise TypeError("drop_local_exe_scopes: this ParallelExecutor has not run yet")
        self._program.runner(self._scope, self._places[0]).drop_temporaries()
        self._executor.release_memory()
        self._is_dropped = True

    def _need_create_local_exe_scopes(self) -> bool:
        """Return whether the next run allocates memory for temporaries."""
        return self._is_dropped or not self._has_run


def _expect_executor(share_vars_from: object) -> None:
    if share_vars_from is not None and not isinstance(share_vars_from, ParallelExecutor):
        kind = type(share_vars_from).__name__
        raise TypeError(f"share_vars_from must be a ParallelExecutor, not {kind}")


def _overwrite(strategy: BuildStrategy, **values: tuple[int, int]) -> None:
    """Set fields to values other than the defaults, with a note if that changes them."""
    for name, (value, default) in values.items():
        if value not in (default, before := getattr(strategy, name)):
            note = f"build_strategy.{name} was {before} and is now {value}, as it was passed"
            print(note, file=sys.stderr)
            setattr(strategy, name, value)


def _named(feed: Feeds | None, feed_dict: Feeds | None) -> Feeds | None:
    """Return the feed, passed by its current name or, with a warning, by its old one."""
    if feed_dict is None or feed is not None:
        return feed
    warnings.warn("feed_dict is deprecated: pass feed", DeprecationWarning, stacklevel=3)
    return feed_dict
