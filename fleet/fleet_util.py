"""`FleetUtil`: messages of one worker, and metrics over all workers, as release 1.8 has them."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np

from compiler.ir.types import Array
from fleet.algorithm import Fleet
from fleet.collective import fleet as collective
from fleet.parameter_server import fleet as parameter_server
from fluid.executor import global_scope
from runtime.device import CPUPlace, Place
from runtime.scope import Scope

__all__ = ["FleetUtil"]

FLEETS: dict[str, Fleet] = {"transpiler": parameter_server, "collective": collective}
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
        """Set a variable to zeros of its shape, of type `param_type`."""
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

        `stat_pos` and `stat_neg` are variables with the numbers of positive and negative examples
        by predicted chance, as `fluid.layers.auc` has them, [1, n]. None where there are none.
        """
        scope = global_scope() if scope is None else scope
        counts = [scope.find_var(name) for name in (stat_pos, stat_neg)]
        if None in counts:
            self.rank0_print("not found auc bucket")
            return None
        return area(*[self._summed(np.array(each.get_tensor())) for each in counts])

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

    def _summed(self, counts: Array) -> Any:
        total = np.zeros(counts.size, counts.dtype)
        self._fleet.all_reduce_worker(counts.reshape(-1), total)
        return total


def area(positive: Array, negative: Array) -> float:
    """The area under the ROC curve of counts by predicted chance, ascending; 0.5 for no curve.

    >>> area(np.array([0, 1]), np.array([1, 0]))
    1.0
    """
    above_positive = np.cumsum(positive[::-1], dtype=np.float64)
    above_negative = np.cumsum(negative[::-1], dtype=np.float64)
    if not len(positive) or above_positive[-1] * above_negative[-1] == 0:
        return 0.5
    whole = np.trapezoid(
        np.concatenate([[0], above_positive]), np.concatenate([[0], above_negative])
    )
    return float(whole / (above_positive[-1] * above_negative[-1]))
