"""What `fluid.io` does for trainers of parameter servers, under its private names of 1.8.5."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.distributed.job import ParameterServerJob
from fluid.executor import Executor
from fluid.framework import Program
from fluid.saving.persistables import PathName, load_persistables, save_persistables

__all__ = ["load_distributed_persistables", "replace_endpoints", "save_distributed_persistables"]


def save_distributed_persistables(
    executor: Executor, dirname: PathName, main_program: Program
) -> None:
    """Save all persistable variables of a trainer's program, those on servers as well.

    Raises TypeError for anything but a Program, and ValueError for one without servers.
    """
    _expect_trainer(main_program, "_save_distributed_persistables")
    save_persistables(executor, dirname, main_program)


def load_distributed_persistables(
    executor: Executor, dirname: PathName, main_program: Program
) -> None:
    """Load all persistable variables of a program of servers.

    Raises TypeError for anything but a Program, and ValueError for one without servers.
    """
    _expect_trainer(main_program, "_load_distributed_persistables")
    load_persistables(executor, dirname, main_program)


def _expect_trainer(main_program: object, name: str) -> None:
    if not isinstance(main_program, Program):
        raise TypeError("'main_program' should be an instance of Program.")
    if not isinstance(main_program.job, ParameterServerJob):
        raise ValueError(f"'{name}' just be designed for distributed training.")


def replace_endpoints(program: Program, endpoints: Sequence[str]) -> Program:
    """Set the servers' endpoints of the ops that send and receive; returns the program."""
    for op in program.global_block().ops:
        if op.has_attr("epmap"):
            op.set_attr("epmap", list(endpoints))
    return program
