"""Trainers and device workers: their descriptions are those that release 1.8.5 writes."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.compat.old_names.device_worker import (
    DeviceWorker,
    DeviceWorkerFactory,
    DownpourSGD,
    Hogwild,
)
from fluid.compat.old_names.trainer_desc import DistMultiTrainer, MultiTrainer
from fluid.compat.old_names.trainer_factory import FetchHandlerMonitor, TrainerFactory
from fluid.compat.proto import trainer_desc_pb2
from fluid.incubate.fleet.parameter_server.pslib import ps_pb2

DOWNPOUR = """\
downpour_param {
  sparse_table {
    table_id: 7
    sparse_key_name: "k"
    sparse_value_name: "v"
    sparse_grad_name: "g"
    emb_dim: 9
    fea_dim: 11
    label_var_name: "click"
  }
  sparse_table {
    table_id: 8
    sparse_key_name: "k"
    sparse_value_name: "v"
    sparse_grad_name: "g"
    emb_dim: 10
    fea_dim: 12
    label_var_name: "click"
    is_async: true
  }
  dense_table {
    table_id: 5
    dense_value_name: "w5"
    dense_grad_name: "w@GRAD"
  }
  skip_ops: "lookup_table"
  program_config {
    program_id: "ID"
    push_sparse_table_id: 7
    push_sparse_table_id: 8
    push_dense_table_id: 5
    pull_sparse_table_id: 7
    pull_dense_table_id: 5
  }
  push_sparse: false
  push_dense: false
  stat_var_names: "s"
}
"""
COPIES = """\
copy_table_config {
  need_copy: true
  batch_num: 100
  src_sparse_tables: 1
  dest_sparse_tables: 2
  dense_pull_after_copy: true
  sparse_copy_by_feasign: true
  enable_dependency: false
  table_denpendency_map {
    key: 1
    values: 2
  }
}
adjust_ins_weight_config {
  need_adjust: false
  nid_slot: "n"
  nid_adjw_threshold: 0.3
  nid_adjw_ratio: 0.0
  ins_weight_slot: ""
}
"""


def with_tables(worker: str, **more: object) -> fluid.Program:
    """A program whose options have two dense and two sparse tables."""
    program, job = fluid.Program(), ps_pb2.PSParameter()
    tables: Any = ps_pb2.DownpourTrainerParameter(skip_op=["lookup_table"])
    for number in (0, 5):
        tables.dense_table.add(
            table_id=number, dense_variable_name=[f"w{number}"],
            dense_gradient_variable_name=["w@GRAD"],
        )  # fmt: skip
    for number, size in ((7, 11), (8, 12)):
        tables.sparse_table.add(
            table_id=number, slot_key=["k"], slot_value=["v"], slot_gradient=["g"]
        )
        server = job.server_param.downpour_server_param
        server.downpour_table_param.add(table_id=number).accessor.fea_dim = size
    uses = {"push_sparse": [7, 8], "push_dense": [5], "pull_sparse": [7], "pull_dense": [5]}
    key = str(id(program))
    program._fleet_opt = {
        "trainer": "DistMultiTrainer", "device_worker": worker, "fleet_desc": job,
        "program_configs": {key: uses}, "stat_var_names": ["s"], "use_cvm": False,
        "program_id_to_worker": {key: SimpleNamespace(get_desc=lambda: tables)}, **more,
    }  # fmt: skip
    return program


def described(program: fluid.Program, infer: bool = False) -> Any:
    """The trainer of a program's options, completed."""
    trainer = TrainerFactory()._create_trainer(program._fleet_opt)
    trainer._set_program(program)
    trainer._set_thread(3)
    trainer._set_infer(infer)
    trainer._gen_trainer_desc()
    return trainer


def test_tables_of_servers() -> None:
    program = with_tables("DownpourSGDOPT", local_tables=[7], async_tables=[7, 8])
    trainer = described(program, infer=True)
    text = str(trainer).replace(str(id(program)), "ID")
    assert text[text.index("downpour_param") :] == DOWNPOUR
    desc = trainer_desc_pb2.TrainerDesc.FromString(trainer._desc())
    assert desc == trainer.proto_desc
    assert (desc.device_worker_name, desc.pull_dense_param.device_num) == ("DownpourWorkerOpt", 3)
    assert [table.table_id for table in desc.pull_dense_param.dense_table] == [5]


@pytest.mark.parametrize(
    ("more", "sizes"), [({}, (9, 11)), ({"use_cvm": True}, (11, 11)), ({"no_cvm": True}, (11, 11))]
)
def test_counts_of_shows_and_clicks_are_part_of_an_embedding(
    more: dict[str, object], sizes: tuple[int, int]
) -> None:
    table = described(with_tables("DownpourSGD", **more)).proto_desc.downpour_param.sparse_table[0]
    assert (table.emb_dim, table.fea_dim) == sizes


def test_hogwild_with_tables_skips_what_inference_does_not_push() -> None:
    desc = described(with_tables("Hogwild"), infer=True).proto_desc
    pushes = ["push_sparse", "push_sparse_v2", "push_dense"]
    assert desc.hogwild_param.skip_ops == ["feed", "lookup_table", *pushes]
    assert [table.emb_dim for table in desc.downpour_param.sparse_table] == [-1, -1]
    assert described(with_tables("Hogwild")).proto_desc.hogwild_param.skip_ops == ["lookup_table"]


def test_options_are_set() -> None:
    program = with_tables(
        "DownpourSGD", scale_datanorm=0.5, dump_fields=["a", "b"], dump_fields_path="p",
        dump_param=["q"], mpi_rank=2, mpi_size=3, dump_slot=True, dump_file_num=4,
        dump_converter="c", check_nan_var_names=["z"], loss_names=["l"],
        adjust_ins_weight={"nid_slot": "n", "nid_adjw_threshold": 0.3},
        copy_table={
            "need_copy": True, "src_sparse_tables": [1], "dest_sparse_tables": 2,
            "dependency_map": {1: 2},
        },
    )  # fmt: skip
    lines = str(described(program)).split("copy_table_config")[0].splitlines()
    assert lines == [
        'class_name: "DistMultiTrainer"', 'device_worker_name: "DownpourWorker"', "thread_num: 3",
        "use_cvm: false", "dump_slot: true", "scale_datanorm: 0.5", "mpi_rank: 2",
        'dump_fields_path: "p"', 'dump_fields: "a"', 'dump_fields: "b"', 'dump_converter: "c"',
        'dump_param: "q"', "mpi_size: 3", "dump_file_num: 4", 'check_nan_var_names: "z"',
    ]  # fmt: skip
    assert COPIES in str(described(program))


def test_the_executor_prepares_a_trainer() -> None:
    program = fluid.Program()
    with fluid.program_guard(program):
        out = fluid.layers.scale(fluid.data("x", [2, 3]), 2.0)
    executor: Any = fluid.Executor(fluid.CPUPlace())
    dataset = SimpleNamespace(thread_num=4)
    scope, trainer = executor._prepare_trainer(program, dataset, None, 0, False, [out], ["is"], 7)
    trainer._gen_trainer_desc()
    assert scope is fluid.global_scope()
    assert str(trainer) == (
        'class_name: "MultiTrainer"\ndevice_worker_name: "HogwildWorker"\nthread_num: 4\n'
        f'debug: false\nfetch_config {{\n  fetch_var_names: "{out.name}"\n'
        '  fetch_var_str_format: "is"\n  print_period: 7\n}\nthread_barrier: false\n'
    )
    compiled = executor._prepare_trainer(fluid.CompiledProgram(program), dataset, thread=9)[1]
    assert compiled.proto_desc.thread_num == 9
    assert not compiled.proto_desc.HasField("thread_barrier")
    with pytest.raises(AssertionError, match="0 texts for 1 variables"):
        executor._prepare_trainer(program, dataset, fetch_list=[out])
    dataset.thread_num = 0
    with pytest.raises(RuntimeError, match="You should set thread num first"):
        executor._prepare_trainer(program, dataset)


def test_sections_of_a_pipeline() -> None:
    program, section = fluid.Program(), fluid.Program()
    program._pipeline_opt = {
        "trainer": "PipelineTrainer", "device_worker": "Section", "queue_size": 30,
        "section_program_list": [{"program": section, "input_set": ["a"], "output_set": ["b"]}],
        "place_list": [fluid.CUDAPinnedPlace()], "concurrency_list": [2], "start_cpu_core_id": 1,
        "sync_steps": 2, "param_need_sync": ["w"],
    }  # fmt: skip
    executor: Any = fluid.Executor(fluid.CPUPlace())
    trainer = executor._prepare_trainer(program, thread=2)[1]
    trainer._gen_trainer_desc()
    param = trainer.proto_desc.section_param
    (config,) = param.section_config
    assert config.program_desc.SerializeToString() == section.desc.serialize_to_string()
    assert (config.place, config.concurrency, config.section_in_var_names) == (2, 2, ["a"])
    assert (param.queue_size, param.sync_steps, param.param_need_sync) == (30, 2, ["w"])
    assert fluid.Program()._pipeline_opt is None


def test_what_is_no_description_is_refused() -> None:
    with pytest.raises(ValueError, match=r"len\(src_var_list\) != len\(dest_var_list\), 1 vs 0"):
        DistMultiTrainer()._set_copy_table_config({"src_var_list": ["a"]})
    with pytest.raises(ValueError, match="dependency len 2 != 1"):
        MultiTrainer()._set_copy_table_config({"dependency_map": {1: [1, 2]}})
    with pytest.raises(NotImplementedError, match="does not implement gen_worker_desc"):
        DeviceWorker()._gen_worker_desc(trainer_desc_pb2.TrainerDesc())
    with pytest.raises(RuntimeError, match="None Program"):
        TrainerFactory()._create_trainer()._gen_trainer_desc()
    with pytest.raises(RuntimeError, match="no device worker"):
        MultiTrainer()._gen_trainer_desc()
    with pytest.raises(KeyError, match="no trainer 'X'; there are MultiTrainer"):
        TrainerFactory()._create_trainer({"trainer": "X", "device_worker": "Hogwild"})
    with pytest.raises(KeyError, match="no device worker 'Downpoursgd'"):
        DeviceWorkerFactory()._create_device_worker("DownpourSGD")
    assert isinstance(DeviceWorkerFactory()._create_device_worker("hogwild"), Hogwild)
    worker = DownpourSGD()
    worker._set_program(fluid.Program())
    with pytest.raises(ValueError, match="must have program_id_to_worker"):
        worker._gen_worker_desc(trainer_desc_pb2.TrainerDesc())
    program = with_tables("DownpourSGD", fleet_desc=None)
    with pytest.raises(RuntimeError, match="PSParameter: _set_fleet_desc"):
        described(program)


def test_a_monitor_calls_a_handler_with_the_values_of_a_scope() -> None:
    with fluid.program_guard(fluid.Program()):
        x, missing = fluid.data("x", [1, 2]), fluid.data("y", [1])
    scope, called = fluid.Scope(), threading.Event()
    scope.var("x").get_tensor().set(np.ones([1, 2], "float32"), fluid.CPUPlace())
    scope.var("z")
    results: list[dict[str, Any]] = []

    class Handler(fluid.executor.FetchHandler):
        def handler(self, res_dict: Any) -> None:
            results.append(dict(res_dict))
            called.set()

    variables: Any = {"mine": x, "none": None, "y": missing}
    with pytest.warns(UserWarning, match="the value of none is not a Variable"):
        monitor = FetchHandlerMonitor(scope, Handler(variables, period_secs=0.01))
    monitor.start()
    assert called.wait(30)
    monitor.stop()
    count = len(results)
    assert results[0]["mine"].tolist() == [[1.0, 1.0]]
    assert (results[0]["none"], results[0]["y"]) == (None, None)
    assert not called.clear() and not called.wait(0.05) and len(results) == count
