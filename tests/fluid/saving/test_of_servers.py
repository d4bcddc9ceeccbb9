"""Saves of a trainer's program under the private names of `fluid.io`."""

from pathlib import Path

import pytest

import fluid
from fluid import io, layers
from fluid.framework import Program


def test_programs_without_servers_are_refused(tmp_path: Path) -> None:
    executor, main = fluid.Executor(), Program()
    for call in (io._save_distributed_persistables, io._load_distributed_persistables):
        with pytest.raises(TypeError, match="should be an instance of Program"):
            call(executor, str(tmp_path), None)
        with pytest.raises(ValueError, match="just be designed for distributed training"):
            call(executor, str(tmp_path), main)


def test_a_trainer_gets_other_endpoints() -> None:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = layers.mean(layers.fc(layers.data("x", [4]), 2, param_attr="w"))
        fluid.optimizer.SGD(0.1).minimize(loss)
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, main, "127.0.0.1:6174", 1, startup_program=startup)
    trainer = transpiler.get_trainer_program(wait_port=False)
    assert io._endpoints_replacement(trainer, ["127.0.0.1:7000"]) is trainer
    sends = [op for op in trainer.global_block().ops if op.has_attr("epmap")]
    assert sends and {tuple(op.attr("epmap")) for op in sends} == {("127.0.0.1:7000",)}
    assert io._get_valid_program(trainer) is trainer
