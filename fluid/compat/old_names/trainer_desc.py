"""Trainers: descriptions of how threads train on the lines of files.

The descriptions are those of release 1.8.5, for scripts that build and compare them;
`Executor.train_from_dataset` trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

from compiler.support.processors import available_processors
from fluid.compat.old_names.device_worker import DeviceWorker, Options
from fluid.compat.proto import trainer_desc_pb2
from fluid.compat.proto.messages import ProtoMessage
from fluid.framework import Program, Variable

__all__ = ["DistMultiTrainer", "MultiTrainer", "PipelineTrainer", "TrainerDesc"]

K = TypeVar("K")


class TrainerDesc:
    """A trainer and its `proto_desc`, a `trainer_desc_pb2.TrainerDesc`.

    It has as many threads as there are processors unless they are set.
    """

    _CLASS_NAME: ClassVar[str] = ""

    def __init__(self) -> None:
        self.proto_desc: ProtoMessage = trainer_desc_pb2.TrainerDesc()
        self.proto_desc.thread_num = available_processors()
        self._fleet_desc: object = None
        self._device_worker: DeviceWorker | None = None
        self._program: Program | None = None
        self._infer = False

    def _set_fetch_var_and_info(
        self, fetch_vars: Sequence[Variable], fetch_info: Iterable[str], print_period: int
    ) -> None:
        """Print variables after their texts every so many batches."""
        config = self.proto_desc.fetch_config
        for var, text in zip(fetch_vars, fetch_info, strict=False):
            config.fetch_var_names.append(var.name)
            config.fetch_var_str_format.append(text)
        config.print_period = print_period

    def _set_debug(self, debug: bool) -> None:
        self.proto_desc.debug = debug

    def _set_thread(self, thread_num: int) -> None:
        self.proto_desc.thread_num = thread_num

    def _set_device_worker(self, device_worker: DeviceWorker) -> None:
        self._device_worker = device_worker

    def _set_infer(self, infer: bool) -> None:
        self._infer = infer

    def _set_fleet_desc(self, fleet_desc: object) -> None:
        self._fleet_desc = fleet_desc

    def _set_program(self, program: Program | None) -> None:
        self._program = program

    def _gen_trainer_desc(self) -> None:
        """Complete the description by what the device worker does with the program."""
        if not self._CLASS_NAME:
            return
        self.proto_desc.class_name = self._CLASS_NAME
        worker: Any = self._device_worker
        if worker is None:
            raise RuntimeError("the trainer has no device worker: _set_device_worker")
        if self._program is None:
            raise RuntimeError("None Program: _set_program")
        worker._set_infer(self._infer)
        worker._set_program(self._program)
        worker._gen_worker_desc(self.proto_desc)

    def _set_use_cvm(self, use_cvm: bool = False) -> None:
        self.proto_desc.use_cvm = use_cvm

    def _set_no_cvm(self, no_cvm: bool = False) -> None:
        self.proto_desc.no_cvm = no_cvm

    def _set_scale_datanorm(self, scale_datanorm: float = -1) -> None:
        self.proto_desc.scale_datanorm = scale_datanorm

    def _set_dump_slot(self, dump_slot: bool) -> None:
        self.proto_desc.dump_slot = dump_slot

    def _set_mpi_rank(self, mpi_rank: int) -> None:
        self.proto_desc.mpi_rank = mpi_rank

    def _set_mpi_size(self, mpi_size: int) -> None:
        self.proto_desc.mpi_size = mpi_size

    def _set_dump_fields(self, dump_fields: Iterable[str]) -> None:
        self.proto_desc.dump_fields.extend(dump_fields)

    def _set_dump_fields_path(self, path: str) -> None:
        self.proto_desc.dump_fields_path = path

    def _set_dump_file_num(self, dump_file_num: int) -> None:
        self.proto_desc.dump_file_num = dump_file_num

    def _set_dump_converter(self, converter: str) -> None:
        self.proto_desc.dump_converter = converter

    def _set_dump_param(self, dump_param: Iterable[str]) -> None:
        self.proto_desc.dump_param.extend(dump_param)

    def _set_thread_barrier(self, thread_barrier: bool) -> None:
        self.proto_desc.thread_barrier = thread_barrier

    def _set_check_nan_var_names(self, check_nan_var_names: Iterable[str]) -> None:
        self.proto_desc.check_nan_var_names.extend(check_nan_var_names)

    def _set_loss_names(self, loss_names: Iterable[str]) -> None:
        self.proto_desc.loss_names.extend(loss_names)

    def _set_adjust_ins_weight(self, config_dict: Options) -> None:
        """Set how examples of rare ids are weighted; what is not given gets its default."""
        config = self.proto_desc.adjust_ins_weight_config
        for field in config.DESCRIPTOR.fields:
            setattr(config, field.name, config_dict.get(field.name, field.default_value))

    def _set_copy_table_config(self, config_dict: Options) -> None:
        """Set which tables or variables are copied to which.

        Raises ValueError where sources and destinations differ in number, and for a table that
        depends on several.
        """
        config = self.proto_desc.copy_table_config
        config.need_copy = config_dict.get("need_copy", False)
        config.batch_num = config_dict.get("batch_num", 100)
        for source, dest in _COPIED:
            sources, dests = _listed(config_dict, source), _listed(config_dict, dest)
            if len(sources) != len(dests):
                counts = f"{len(sources)} vs {len(dests)}"
                raise ValueError(f"len({source}) != len({dest}), {counts}")
            getattr(config, source).extend(sources)
            getattr(config, dest).extend(dests)
        dependencies = config_dict.get("dependency_map", {})
        for table in dependencies:
            values = _listed(dependencies, table)
            if len(values) != 1:
                raise ValueError(f"dependency len {len(values)} != 1")
            config.table_denpendency_map.add(key=table, values=values)
        config.dense_pull_after_copy = config_dict.get("dense_pull_after_copy", True)
        config.enable_dependency = config_dict.get("enable_dependency", False)
        config.sparse_copy_by_feasign = config_dict.get("sparse_copy_by_feasign", True)

    def _desc(self) -> bytes:
        """The description as bytes."""
        return self.proto_desc.SerializeToString()

    def __str__(self) -> str:
        return self.proto_desc.text(shortest=True)


_COPIED = (
    ("src_sparse_tables", "dest_sparse_tables"),
    ("src_dense_tables", "dest_dense_tables"),
    ("src_var_list", "dest_var_list"),
)


def _listed(config: Mapping[K, object], key: K) -> list[object]:
    value = config.get(key, [])
    return cast(list[object], value) if isinstance(value, list) else [value]


class MultiTrainer(TrainerDesc):
    """Threads of one process."""

    _CLASS_NAME: ClassVar[str] = "MultiTrainer"


class DistMultiTrainer(TrainerDesc):
    """Threads of several processes, with PSLIB's servers."""

    _CLASS_NAME: ClassVar[str] = "DistMultiTrainer"


class PipelineTrainer(TrainerDesc):
    """Sections of a program on several devices."""

    _CLASS_NAME: ClassVar[str] = "PipelineTrainer"
