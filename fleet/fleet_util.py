"""`FleetUtil`: messages of one worker, metrics over all workers, models by day, program files.

Methods and defaults are those of release 1.8; those for HDFS or PSLIB raise NotImplementedError.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from compiler.ir.types import Array
from fleet import program_files
from fleet.collective import fleet as collective
from fleet.global_metrics import Metrics, area, metrics_of
from fleet.parameter_server import fleet as parameter_server
from fleet.saved_model_check import check_saved_vars_try_dump
from fluid.executor import global_scope
from fluid.framework import Program
from fluid.parameter_server.saving import merged_values
from runtime.device import CPUPlace, Place
from runtime.tensors.scope import Scope

__all__ = ["FleetUtil", "check_all_trainers_ready"]

FLEETS: dict[str, Any] = {"transpiler": parameter_server, "collective": collective}
HDFS, PSLIB = "it writes to HDFS", "only PSLIB has such tables"
MISSING = {
    "load_fleet_model_one_table": PSLIB, "save_delta_model": PSLIB, "save_cache_model": PSLIB,
    "save_cache_base_model": PSLIB, "save_xbox_base_model": PSLIB, "write_model_donefile": HDFS,
    "write_xbox_donefile": HDFS, "write_cache_donefile": HDFS, "save_paddle_params": HDFS,
    "save_paddle_inference_model": HDFS, "get_last_save_xbox_base": HDFS,
    "get_last_save_xbox": HDFS, "get_last_save_model": HDFS,
}  # fmt: skip
"""Unsupported methods of release 1.8, and the reason."""
PRINTED = ("AUC", "BUCKET_ERROR", "MAE", "RMSE", "Actural_CTR", "Predicted_CTR", "COPC",
           "MEAN Q_VALUE")  # fmt: skip
"""Names of metrics as release 1.8 prints them."""
SUMS = ("sqrerr", "abserr", "prob", "q", "pos", "total")
"""The variables of `ctr_metric_bundle`, sums over a worker's examples."""
LOG = logging.getLogger(__name__)


class FleetUtil:
    """Helpers for a fleet. `mode` is "transpiler" or "collective".

    Raises NotImplementedError for "pslib", ValueError for another mode.
    """

    def __init__(self, mode: str = "transpiler") -> None:
        if mode == "pslib":
            raise NotImplementedError("there is no PSLIB here: pass mode='transpiler'")
        if mode not in FLEETS:
            raise ValueError(f"mode must be one of {', '.join(FLEETS)}, but is {mode!r}")
        self._fleet = FLEETS[mode]

    def rank0_print(self, s: str) -> None:
        """Print a line on worker 0."""
        if self._fleet.is_first_worker():
            print(s)
            sys.stdout.flush()

    def rank0_info(self, s: str) -> None:
        """Log a line on worker 0."""
        if self._fleet.is_first_worker():
            LOG.info(s)

    def rank0_error(self, s: str) -> None:
        """Log an error on worker 0."""
        if self._fleet.is_first_worker():
            LOG.error(s)

    def set_zero(
        self,
        var_name: str,
        scope: Scope | None = None,
        place: Place | None = None,
        param_type: str = "int64",
    ) -> None:
        """Set a variable to zeros of its shape, with dtype `param_type`."""
        tensor = (global_scope() if scope is None else scope).var(var_name).get_tensor()
        zeros = np.zeros(np.array(tensor).shape, param_type)
        tensor.set(zeros, CPUPlace() if place is None else place)

    def get_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
    ) -> float | None:
        """The area under the ROC curve over all workers.

        `stat_pos` and `stat_neg` are variables with histograms of positive and negative examples by
        predicted probability, as in `fluid.layers.auc`, [1, n]. None if they do not exist.
        """
        scope = global_scope() if scope is None else scope
        counts = [scope.find_var(name) for name in (stat_pos, stat_neg)]
        existing = [variable for variable in counts if variable is not None]
        if len(existing) < len(counts):
            self.rank0_print("not found auc bucket")
            return None
        return area(*[self._summed(np.array(variable.get_tensor())) for variable in existing])

    def print_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
        print_prefix: str = "",
    ) -> None:
        """Print the area under the ROC curve over all workers, on worker 0."""
        value = self.get_global_auc(scope, stat_pos, stat_neg)
        self.rank0_print(f"{print_prefix} global auc = {value}")

    def _summed(self, counts: Array) -> Array:
        total = np.zeros(counts.size, counts.dtype)
        self._fleet.all_reduce_worker(counts.reshape(-1), total)
        return total

    def get_global_metrics(
        self,
        scope: Scope | None = None,
        stat_pos_name: str = "_generated_var_2",
        stat_neg_name: str = "_generated_var_3",
        sqrerr_name: str = "sqrerr",
        abserr_name: str = "abserr",
        prob_name: str = "prob",
        q_name: str = "q",
        pos_ins_num_name: str = "pos",
        total_ins_num_name: str = "total",
    ) -> list[object]:
        """The nine `Metrics` of predicted click rates over all workers, as a list.

        The first two names are variables as in `get_global_auc`, the others [1] with sums over this
        worker's examples: squared and absolute errors, predicted rates, q values, clicks and the
        number of examples. Nine times None if a variable is missing or nothing was counted.
        """
        scope = global_scope() if scope is None else scope
        sums = (sqrerr_name, abserr_name, prob_name, q_name, pos_ins_num_name, total_ins_num_name)
        names = (stat_pos_name, stat_neg_name, *sums)
        totals_by_name: list[Array] = []
        variables = {name: scope.find_var(name) for name in names}
        missing = next((name for name, variable in variables.items() if variable is None), None)
        if missing is not None:
            self.rank0_print(f"not found {missing}")
            return [None] * len(Metrics._fields)
        for name in names:
            variable = variables[name]
            assert variable is not None
            totals_by_name.append(self._summed(np.array(variable.get_tensor())))
        totals: dict[str, float] = dict(
            zip(SUMS, (float(total[0]) for total in totals_by_name[2:]), strict=True)
        )
        if not totals["total"]:
            return [None] * len(Metrics._fields)
        return list(metrics_of(totals_by_name[0], totals_by_name[1], totals))

    def print_global_metrics(self, *arguments: Any, print_prefix: str = "", **more: Any) -> None:
        """Print `get_global_metrics` of the same arguments, on worker 0.

        `print_prefix` is the last argument if all are positional.
        """
        count = len(Metrics._fields)
        metrics = self.get_global_metrics(*arguments[:count], **more)
        if metrics[0] is None:
            return
        prefix = arguments[count] if len(arguments) > count else print_prefix
        values = [f"{name}={value:.6f}" for name, value in zip(PRINTED, metrics, strict=False)]
        self.rank0_print(f"{prefix} global {' '.join(values)} Ins number={metrics[-1]}")

    # ---- models

    def load_fleet_model(self, path: str, mode: int = 0) -> None:
        """Initialise this server, and load what `save_fleet_model` saved. `mode` must be 0."""
        self._expect_whole(mode)
        self._fleet.init_server(path)

    def save_fleet_model(self, path: str, mode: int = 0) -> None:
        """Save every persistable variable into a folder. `mode` must be 0."""
        self._expect_whole(mode)
        self._fleet.save_persistables(self._fleet._executor, path)

    def _expect_whole(self, mode: int) -> None:
        if mode != 0:
            raise NotImplementedError(f"mode is {mode}, expected 0: only PSLIB saves differences")

    def load_model(self, output_path: str, day: int | str, pass_id: int | str) -> None:
        """`load_fleet_model` of the folder `output_path/day/pass_id`."""
        self.load_fleet_model(_folder(output_path, day, pass_id))

    def save_model(self, output_path: str, day: int | str, pass_id: int | str) -> None:
        """`save_fleet_model` to the folder `output_path/day/pass_id`."""
        self.save_fleet_model(_folder(output_path, day, pass_id))

    def save_batch_model(self, output_path: str, day: int | str) -> None:
        """`save_fleet_model` to the folder `output_path/day/0`."""
        self.save_fleet_model(_folder(output_path, day, 0))

    def pull_all_dense_params(self, scope: Scope, program: Program) -> None:
        """Set the parameters of a trainer's program that are on servers, on worker 0.

        All workers wait for each other before and after.
        """
        self._fleet.barrier_worker()
        if self._fleet.is_first_worker():
            for name, value in merged_values(program).items():
                if name in program.global_block().vars:
                    scope.var(name).get_tensor().set(value, CPUPlace())
        self._fleet.barrier_worker()

    # ---- intervals of online training

    def get_online_pass_interval(
        self,
        days: str,
        hours: str,
        split_interval: int | str,
        split_per_pass: int | str,
        is_data_hourly_placed: bool,
    ) -> list[list[str]]:
        """The names of the data of each pass of a day, `HHMM`, or `HH` if stored by hours.

        `hours` are numbers separated by spaces, or `{FIRST..LAST}`; a day is split every
        `split_interval` minutes, and a pass has `split_per_pass` splits, possibly fewer in the last
        one. `days` has no effect. Raises ValueError for invalid hours or numbers.
        """
        first, last = _hours(hours)
        minutes, count = int(split_interval), int(split_per_pass)
        if minutes < 1 or count < 1:
            raise ValueError("split_interval and split_per_pass must be at least 1")
        starts = [m for m in range(0, 24 * 60, minutes) if first <= m // 60 <= last]
        names = [f"{m // 60:02d}" + ("" if is_data_hourly_placed else f"{m % 60:02d}")
                 for m in starts]  # fmt: skip
        return [names[index : index + count] for index in range(0, len(names), count)]

    # ---- program files

    def program_type_trans(self, prog_dir: str, prog_fn: str, is_text: bool) -> str:
        """Write a program as text; see `fleet.program_files.program_type_trans`."""
        return program_files.program_type_trans(prog_dir, prog_fn, is_text)

    def draw_from_program_file(
        self, model_filename: str, is_text: bool, output_dir: str, output_filename: str
    ) -> None:
        """Draw the main block of a program file; see `fleet.program_files.graphviz`."""
        program = program_files.load_program(model_filename, is_text)
        self.draw_from_program(program, output_dir, output_filename)

    def draw_from_program(self, program: Program, output_dir: str, output_name: str) -> None:
        """Draw the main block of a program; see `fleet.program_files.graphviz`."""
        program_files.graphviz(program.global_block(), output_dir, output_name)

    def check_two_programs(self, config: Any) -> bool:
        """Whether a pruned program matches the training program; `config` has the fields of release
        1.8.

        They are `train_prog_path`, `pruned_prog_path`, `is_text_train_program` and
        `is_text_pruned_program`, and with `draw` the name of a drawing, `draw_out_name`.
        """
        load = program_files.load_program
        trained = load(config.train_prog_path, config.is_text_train_program)
        pruned = load(config.pruned_prog_path, config.is_text_pruned_program)
        if config.draw:
            folder = str(Path(config.pruned_prog_path).parent)
            self.draw_from_program(pruned, folder, config.draw_out_name)
        return program_files.check_pruned_program_vars(trained, pruned)

    def check_vars_and_dump(self, config: Any) -> list[object]:
        """Run a saved model once and return what it fetches; `config` has the fields of release
        1.8.

        They are `dump_model_dir`, `dump_program_filename`, `is_text_dump_program`,
        `save_params_filename`, `batch_size`, `feed_config` and `fetch_config`; see
        `fleet.saved_model_check.check_saved_vars_try_dump`.
        """
        return list(check_saved_vars_try_dump(
            config.dump_model_dir, config.dump_program_filename, config.is_text_dump_program,
            config.feed_config, config.fetch_config, config.batch_size,
            config.save_params_filename,
        ))  # fmt: skip

    def parse_program_proto(self, prog_path: str, is_text: bool, output_dir: str) -> None:
        """Write the variables and ops of a file; see `fleet.program_files.parse_program`."""
        program_files.parse_program(program_files.load_program(prog_path, is_text), output_dir)

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name not in MISSING:
            raise AttributeError(f"FleetUtil has no {name!r}")
        return lambda *_, **__: _refuse(name)


def check_all_trainers_ready(ready_path: str, epoch: int | str) -> None:
    """Wait until every worker of the fleet with parameter servers has called this for an epoch.

    Each creates a file `ready.EPOCH.WORKER.done` in the folder `ready_path`, which is created if
    missing; release 1.8 keeps it in HDFS.
    """
    folder = Path(ready_path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"ready.{epoch}.{parameter_server.worker_index()}.done").touch()
    parameter_server.barrier_worker()


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"FleetUtil.{name} is not supported: {MISSING[name]}")


def _folder(output_path: str, day: int | str, pass_id: int | str) -> str:
    return str(Path(output_path) / str(day) / str(pass_id))


def _hours(text: str) -> tuple[int, int]:
    """The first and the last hour of `{FIRST..LAST}` or `H H …`. Raises ValueError."""
    match = re.fullmatch(r"\{(\d+)\.\.(\d+)\}|(\d+)(?:\s+\d+)*", text.strip())
    if match is None:
        raise ValueError(f"hours is {text!r}, expected '{{FIRST..LAST}}' or numbers with spaces")
    return int(match[1] or match[3]), int(match[2] or text.split()[-1])
