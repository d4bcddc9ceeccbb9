"""`TrainerFactory`: trainers by the options of a program; `FetchHandlerMonitor`: values by time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from compiler.ir.types import Array
from fluid.compat.old_names.device_worker import (
    DeviceWorker,
    DownpourSGD,
    DownpourSGDOPT,
    Hogwild,
    Options,
    Section,
)
from fluid.compat.old_names.trainer_desc import (
    DistMultiTrainer,
    MultiTrainer,
    PipelineTrainer,
    TrainerDesc,
)
from fluid.framework import Variable
from fluid.running.train_from_dataset import FetchHandler, PeriodicCall
from runtime.tensors.scope import Scope

__all__ = ["FetchHandler", "FetchHandlerMonitor", "TrainerFactory"]

T = TypeVar("T")

_TRAINERS: dict[str, type[TrainerDesc]] = {
    kind.__name__: kind for kind in (MultiTrainer, DistMultiTrainer, PipelineTrainer)
}
_WORKERS: dict[str, type[DeviceWorker]] = {
    kind.__name__: kind for kind in (Hogwild, DownpourSGD, DownpourSGDOPT, Section)
}
_OPTIONS = (
    "dump_slot mpi_rank mpi_size dump_fields dump_fields_path dump_file_num dump_converter "
    "dump_param"
).split()
_SERVER_OPTIONS = {
    "use_cvm": "use_cvm", "no_cvm": "no_cvm", "scale_datanorm": "scale_datanorm",
    "adjust_ins_weight": "adjust_ins_weight", "copy_table": "copy_table_config",
    "check_nan_var_names": "check_nan_var_names", "loss_names": "loss_names",
}  # fmt: skip
"""Options of a job with PSLIB, and the setter of each."""


class TrainerFactory:
    """Creates trainers with their device workers."""

    def _create_trainer(self, opt_info: Options | None = None) -> TrainerDesc:
        """A trainer by the options of an optimizer; a MultiTrainer of Hogwild without any.

        Raises KeyError for options without "trainer" or "device_worker", or of unknown ones.
        """
        if not opt_info:
            opt_info = {"trainer": "MultiTrainer", "device_worker": "Hogwild"}
        trainer: Any = _known(_TRAINERS, opt_info["trainer"], "trainer")()
        worker: Any = _known(_WORKERS, opt_info["device_worker"], "device_worker")()
        setters = {name: name for name in _OPTIONS}
        if "fleet_desc" in opt_info:
            worker._set_fleet_desc(opt_info["fleet_desc"])
            trainer._set_fleet_desc(opt_info["fleet_desc"])
            setters |= _SERVER_OPTIONS
        for name, setter in setters.items():
            if opt_info.get(name) is not None:
                getattr(trainer, f"_set_{setter}")(opt_info[name])
        trainer._set_device_worker(worker)
        return trainer


def _known(kinds: Mapping[str, type[T]], name: str, what: str) -> type[T]:
    if name not in kinds:
        raise KeyError(f"there is no {what} {name!r}; there are {', '.join(kinds)}")
    return kinds[name]


class FetchHandlerMonitor:
    """Calls a handler with the values that variables have in a scope, every `period_secs` seconds.

    The value of what is no variable, has none in the scope, or has LoD, is None.
    """

    def __init__(self, scope: Scope, handler: FetchHandler) -> None:
        self.fetch_instance = handler
        names = {key: _name(key, value) for key, value in handler.var_dict.items()}
        self._calls = PeriodicCall(
            handler.period_secs,
            lambda: handler.handler({key: _value(scope, name) for key, name in names.items()}),
        )

    def start(self) -> None:
        """Start to call the handler, on a thread."""
        self._calls.start()

    def stop(self) -> None:
        """Stop calling it; a call that runs is awaited."""
        self._calls.stop()


def _name(key: str, value: object) -> str | None:
    if isinstance(value, Variable):
        return value.name
    warnings.warn(f"the value of {key} is not a Variable", stacklevel=3)
    return None


def _value(scope: Scope, name: str | None) -> Array | None:
    variable = None if name is None else scope.find_var(name)
    tensor = None if variable is None else variable.get_tensor()
    if tensor is None or not tensor.is_initialized():
        return None
    if tensor.lod():
        warnings.warn(f"{name} has LoD: its value is not passed to the handler", stacklevel=2)
        return None
    return np.array(tensor)
