"""Device workers: they complete a trainer's description with what each of its threads does.

What trains here is `Executor.train_from_dataset`; the descriptions are those that release 1.8.5
passes to its own trainers, for scripts that build and compare them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeAlias, cast

from fluid.compat.proto.messages import ProtoMessage
from fluid.framework import Program
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace

__all__ = [
    "DeviceWorker", "DeviceWorkerFactory", "DownpourSGD", "DownpourSGDOPT", "Hogwild", "Options",
    "Section",
]  # fmt: skip


Options: TypeAlias = Mapping[str, Any]
"""Options of an optimizer by name, as `program._fleet_opt` and `_pipeline_opt` have them."""


class DeviceWorker:
    """What the threads of a trainer do with a program; subclasses describe it."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._infer: bool | None = None
        self._fleet_desc: ProtoMessage | None = None

    def _set_infer(self, infer: bool = False) -> None:
        self._infer = infer

    def _set_fleet_desc(self, fleet_desc: ProtoMessage) -> None:
        """Set the `ps_pb2.PSParameter` of a job with PSLIB."""
        self._fleet_desc = fleet_desc

    def _set_program(self, program: Program | None) -> None:
        self._program = program

    def _expect_program(self) -> Program:
        if self._program is None:
            raise RuntimeError("program of current device worker is not configured: _set_program")
        return self._program

    def _gen_worker_desc(self, trainer_desc: ProtoMessage) -> None:
        """Complete a `trainer_desc_pb2.TrainerDesc`; NotImplementedError of this class alone."""
        raise NotImplementedError(
            "DeviceWorker does not implement gen_worker_desc, please use Hogwild or DownpourSGD, "
            "etc."
        )


class Hogwild(DeviceWorker):
    """Threads that update the same parameters; with PSLIB's tables if the program has any."""

    def _gen_worker_desc(self, trainer_desc: ProtoMessage) -> None:
        trainer_desc.device_worker_name = "HogwildWorker"
        hogwild = trainer_desc.hogwild_param
        if self._infer:
            hogwild.skip_ops.append("feed")
        program = self._expect_program()
        options = program.fleet_opt
        if not options or "fleet_desc" not in options:
            return
        tables = _ServerTables(program, options)
        tables.describe(trainer_desc)
        for index, table in enumerate(trainer_desc.downpour_param.sparse_table):
            table.fea_dim, table.emb_dim = _feature_size(self._fleet_desc, index), -1
            table.label_var_name = ""
        hogwild.stat_var_names.extend(tables.stat_var_names)
        hogwild.skip_ops.extend(tables.worker.skip_op)
        if self._infer:
            hogwild.skip_ops.extend(["push_sparse", "push_sparse_v2", "push_dense"])


class DownpourSGD(DeviceWorker):
    """Threads that pull parameters from PSLIB's servers and push gradients to them."""

    _NAME: ClassVar[str] = "DownpourWorker"

    def _gen_worker_desc(self, trainer_desc: ProtoMessage) -> None:
        program = self._expect_program()
        options = program.fleet_opt or {}
        trainer_desc.device_worker_name = self._NAME
        tables = _ServerTables(program, options)
        tables.describe(trainer_desc)
        downpour = trainer_desc.downpour_param
        has_counts = options.get("use_cvm") or options.get("no_cvm") is True
        for index, table in enumerate(downpour.sparse_table):
            table.fea_dim = _feature_size(self._fleet_desc, index)
            table.emb_dim = table.fea_dim if has_counts else table.fea_dim - 2
            table.label_var_name = "click"
        downpour.skip_ops.extend(tables.worker.skip_op)
        if self._infer:
            downpour.push_dense = downpour.push_sparse = False


class DownpourSGDOPT(DownpourSGD):
    """`DownpourSGD` that may keep its last sparse table local, or pull it asynchronously."""

    _NAME: ClassVar[str] = "DownpourWorkerOpt"

    def _gen_worker_desc(self, trainer_desc: ProtoMessage) -> None:
        super()._gen_worker_desc(trainer_desc)
        options = self._expect_program().fleet_opt or {}
        for table in trainer_desc.downpour_param.sparse_table[-1:]:
            if table.table_id in _ids(options, "local_tables"):
                table.is_local = True
            if table.table_id in _ids(options, "async_tables"):
                table.is_async = True


def _ids(options: Mapping[str, object], name: str) -> Collection[int]:
    return cast(Collection[int], options.get(name, ()))


def _feature_size(fleet_desc: ProtoMessage | None, index: int) -> int:
    """The number of floats in a row of a sparse table."""
    if fleet_desc is None:
        raise RuntimeError("sparse tables need the job's PSParameter: _set_fleet_desc")
    tables = fleet_desc.server_param.downpour_server_param.downpour_table_param
    return tables[index].accessor.fea_dim


class _ServerTables:
    """The tables of PSLIB that a program uses, from the options of its optimizer.

    Raises ValueError where the options do not have the program's worker.
    """

    def __init__(self, program: Program, options: Options) -> None:
        self.program_id = str(id(program))
        workers = options.get("program_id_to_worker")
        if workers is None:
            raise ValueError("opt_info must have program_id_to_worker")
        if workers.get(self.program_id) is None:
            raise ValueError(f"{self.program_id} not found in program_id_to_worker")
        self.worker = workers[self.program_id].get_desc()
        self.config: Mapping[str, list[int]] = options["program_configs"].get(self.program_id, {})
        self.stat_var_names: list[str] = options.get("stat_var_names") or []

    def describe(self, trainer_desc: ProtoMessage) -> None:
        """Add which tables are pulled and pushed, and the names of their variables."""
        downpour, pull = trainer_desc.downpour_param, trainer_desc.pull_dense_param
        pull.device_num = trainer_desc.thread_num
        if self.config:
            added = downpour.program_config.add(program_id=self.program_id)
            for name in ("push_sparse", "push_dense", "pull_sparse", "pull_dense"):
                getattr(added, f"{name}_table_id").extend(self.config[name])
        used = {*self.config.get("push_dense", ()), *self.config.get("pull_dense", ())}
        for table in self.worker.dense_table:
            if table.table_id in used:
                names = {"dense_value_name": table.dense_variable_name}
                pull.dense_table.add(table_id=table.table_id, **names)
                names["dense_grad_name"] = table.dense_gradient_variable_name
                downpour.dense_table.add(table_id=table.table_id, **names)
        for table in self.worker.sparse_table:
            downpour.sparse_table.add(
                table_id=table.table_id, sparse_key_name=table.slot_key,
                sparse_value_name=table.slot_value, sparse_grad_name=table.slot_gradient,
            )  # fmt: skip
        downpour.stat_var_names.extend(self.stat_var_names)


_PLACES = {CPUPlace: "CPUPlace", CUDAPlace: "CUDAPlace", CUDAPinnedPlace: "CUDAPinnedPlace"}


class Section(DeviceWorker):
    """Sections of a program that run as a pipeline, from its `_pipeline_opt`."""

    def _gen_worker_desc(self, trainer_desc: ProtoMessage) -> None:
        trainer_desc.device_worker_name = "SectionWorker"
        options: Options | None = self._expect_program().pipeline_opt
        if options is None:
            raise RuntimeError("SectionWorker needs a program with _pipeline_opt")
        param = trainer_desc.section_param
        for name in ("queue_size", "sync_steps", "start_cpu_core_id"):
            setattr(param, name, options[name])
        param.param_need_sync.extend(options["param_need_sync"])
        for index, section in enumerate(options["section_program_list"]):
            config = param.section_config.add(concurrency=options["concurrency_list"][index])
            config.program_desc.ParseFromString(section["program"].desc.serialize_to_string())
            config.place = getattr(config, _place_name(options["place_list"][index]))
            config.section_in_var_names.extend(section["input_set"])
            config.section_out_var_names.extend(section["output_set"])


def _place_name(place: object) -> str:
    names = [name for kind, name in _PLACES.items() if isinstance(place, kind)]
    if not names:
        raise NotImplementedError(
            "SectionWorker only supports CPUPlace, CUDAPlace and CUDAPinnedPlace now."
        )
    return names[0]


class DeviceWorkerFactory:
    """Creates a device worker by name."""

    def _create_device_worker(self, worker_type: str) -> DeviceWorker:
        """A worker by the name of its class, in any case of letters but the first; KeyError."""
        return _worker(worker_type.capitalize())


def _worker(name: str) -> DeviceWorker:
    kinds = (Hogwild, DownpourSGD, DownpourSGDOPT, Section, DeviceWorker)
    by_name = {kind.__name__: kind for kind in kinds}
    if name not in by_name:
        raise KeyError(f"there is no device worker {name!r}; there are {', '.join(by_name)}")
    return by_name[name]()
