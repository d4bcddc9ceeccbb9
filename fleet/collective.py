"""The fleet of collective training: every worker has all parameters, and gradients are all-reduced.

`incubate.fleet.collective` of release 1.8 and the GPU algorithm of OpenKS. On CPUs the collectives
use Gloo.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from fleet import checkpoints
from fleet.algorithm import Fleet, Mode
from fleet.checkpoints import TrainStatus
from fleet.collective_optimizer import CollectiveOptimizer
from fleet.collective_strategy import DistFCConfig, DistributedStrategy, LambConfig
from fleet.file_systems import FS, LocalFS
from fluid import io
from fluid.executor import Executor
from fluid.framework import Program

__all__ = [
    "Collective",
    "CollectiveOptimizer",
    "DistFCConfig",
    "DistributedStrategy",
    "LambConfig",
    "TrainStatus",
    "fleet",
]


class Collective(Fleet):
    """A fleet of workers only; `main_program` may be a CompiledProgram."""

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self._transpiled_program: Program | None = None
        self._checkoint_prefix = checkpoints.PREFIX
        self._param_file_name = checkpoints.PARAMS

    # ---- what only a fleet with servers does

    def init_worker(self) -> None:
        """Log that there is nothing to do."""
        _warn_of("init_worker")

    def run_worker(self, main_programs: object = None, scopes: object = None) -> None:
        """Log that there is nothing to do."""
        _warn_of("run_worker")

    def init_server(self, model_dir: str | None = None) -> None:
        """Log that there is nothing to do."""
        _warn_of("init_server")

    def run_server(self) -> None:
        """Log that there is nothing to do."""
        _warn_of("run_server")

    def stop_worker(self) -> None:
        """Log that there is nothing to do."""
        _warn_of("stop_worker")

    # ---- the optimizer

    def distributed_optimizer(
        self, optimizer: object, strategy: DistributedStrategy | None = None
    ) -> CollectiveOptimizer:
        """Wrap an optimizer, so that its `minimize` builds the program of this process.

        Raises TypeError if `optimizer` or `strategy` has another type, ValueError if
        `recompute_checkpoints` is not a list.
        """
        self._optimizer = self._wrap(optimizer, strategy)
        return self._optimizer

    def _wrap(self, optimizer: object, strategy: DistributedStrategy | None) -> CollectiveOptimizer:
        return CollectiveOptimizer(optimizer, strategy, self)

    def set_programs(
        self, startup: Program, origin: Program, transpiled: Program, main: object
    ) -> None:
        """Store the programs that an optimizer built."""
        self.startup_program, self._origin_program = startup, origin
        self._transpiled_program, self.main_program = transpiled, main

    # ---- files

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: list[str] | None = None,
        target_vars: Any = None,
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save the program before `minimize`, pruned to `target_vars`, and its parameters.

        Raises AssertionError if `executor` or `main_program` has another type.
        """
        _expect(executor, Executor, "save_inference_model", "executor")
        program = self._origin_program if main_program is None else main_program
        _expect(program, Program, "save_inference_model", "main_program")
        io.save_inference_model(
            dirname, feeded_var_names, target_vars, executor, program, None, None,
            export_for_deployment,
        )  # fmt: skip

    def save_persistables(
        self,
        executor: Executor,
        dirname: str,
        main_program: Program | None = None,
        filename: str | None = None,
    ) -> None:
        """Save every persistable variable, into files of their names or one `filename`.

        Raises AssertionError if `executor` or `main_program` has another type.
        """
        _expect(executor, Executor, "save_persistables", "executor")
        program = self._origin_program if main_program is None else main_program
        _expect(program, Program, "save_persistables", "main_program")
        io.save_persistables(executor, dirname, program, filename=filename)

    # ---- checkpoints

    def save_check_point(
        self,
        executor: Executor,
        path: str,
        train_status: TrainStatus,
        main_program: Program | None = None,
        fs: FS | None = None,
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Save parameters, the optimizer's state and the epoch as the next checkpoint in `path`.

        The save is atomic. One worker should call it. With `remain_all_checkpoint` False, older
        ones are removed. For a remote `fs` files are written to `local_cache_path` first. Raises as
        `save_persistables`.
        """
        fs = LocalFS() if fs is None else fs
        fs.mkdir(path)
        name = f"{checkpoints.PREFIX}.{checkpoints.last_number(fs, path) + 1}"
        final, partial = f"{path}/{name}", f"{path}/{name}.tmp"
        fs.delete(partial)
        program = self._transpiled_program if main_program is None else main_program
        if fs.need_upload_download():
            cache = f"{local_cache_path}/{name}.saved_cache"
            LocalFS().delete(cache)
            self._write_check_point(executor, cache, train_status, program)
            fs.upload(cache, partial)
        else:
            self._write_check_point(executor, partial, train_status, program)
        fs.mv(partial, final)
        if not remain_all_checkpoint:
            self.clean_redundant_check_points(path, fs)

    def _write_check_point(
        self, executor: Executor, folder: str, status: TrainStatus, program: Any
    ) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.save_persistables(executor, folder, program, checkpoints.PARAMS)
        checkpoints.write_status(folder, status)

    def load_check_point(
        self,
        executor: Executor,
        path: str,
        trainer_id: int,
        main_program: Program | None = None,
        fs: FS | None = None,
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Load the newest checkpoint in `path`, saved by any number of workers; return its status.

        None if there is none; AssertionError without `ignore_empty`. Raises ValueError for a
        malformed status file, and what `load_persistables` raises.
        """
        fs = LocalFS() if fs is None else fs
        number = checkpoints.last_number(fs, path)
        if number < 0:
            if not ignore_empty:
                raise AssertionError(f"Can't find checkpoint in {path}")
            return None
        folder = f"{path}/{checkpoints.PREFIX}.{number}"
        if fs.need_upload_download():
            cache = f"{local_cache_path}/{checkpoints.PREFIX}.{number}.load_cache.{trainer_id}"
            LocalFS().delete(cache)
            fs.download(folder, cache)
            folder = cache
        status = checkpoints.read_status(folder)
        program = self._transpiled_program if main_program is None else main_program
        io.load_persistables(executor, folder, program, filename=checkpoints.PARAMS)
        return status

    def clean_redundant_check_points(
        self, root_path: str, fs: FS | None = None, checkpoint_num: int = 1
    ) -> None:
        """Remove all but the newest `checkpoint_num` checkpoints; at least one is kept."""
        fs = LocalFS() if fs is None else fs
        last = checkpoints.last_number(fs, root_path)
        for number in checkpoints.numbers(fs, root_path):
            if number <= last - max(1, checkpoint_num):
                fs.rmr(f"{root_path}/{checkpoints.PREFIX}.{number}")

    def _get_last_checkpoint_no(self, root_path: str, fs: FS) -> int:
        """The number of the newest checkpoint, -1 if there is none."""
        return checkpoints.last_number(fs, root_path)


def _warn_of(method: str) -> None:
    logging.getLogger(__name__).warning(
        "You should not call '%s' method for collective mode.", method
    )


def _expect(given: object, kind: type, where: str, what: str) -> None:
    if not isinstance(given, kind):
        raise AssertionError(
            f"In fleet.{where}() function, {what} must be as {kind.__name__} type, not "
            f"{type(given).__name__}"
        )


fleet = Collective()
"""The fleet of this process, as scripts of release 1.8 import it."""

CollectiveOptimizer.default_fleet = fleet
