"""Which programs are of jobs with parameter servers. Every run asks: nothing is loaded for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler.ir.conversion.remote_lookups import is_remote
from compiler.ir.program import MAIN_BLOCK, OpDesc
from fluid.distributed.job import DerivedJob, ParameterServerJob, ProgramOfJob

__all__ = ["exchanges", "has_placement", "serves", "sessions", "trained_program"]

EXCHANGE = {
    "send", "recv", "send_barrier", "fetch_barrier", "fetched", "prefetch",
    "distributed_lookup_table", "checkpoint_notify", "recv_save",
}  # fmt: skip

sessions: dict[tuple[int, tuple[str, ...]], Any] = {}
"""The open sessions of this process by the number of the trainer and its servers: objects of
`runtime.ps.training.trainer.Trainer`, which only the module `sessions` imports.
"""


def serves(program: ProgramOfJob) -> bool:
    """Whether a program is that of a server."""
    ops = program.blocks[MAIN_BLOCK].ops
    return any(op.type == "listen_and_serv" for op in ops[-1:])


def exchanges(program: ProgramOfJob) -> Iterator[OpDesc]:
    """The ops of a trainer's program that exchange something with servers."""
    ops = (op for block in program.blocks for op in block.ops)
    return (op for op in ops if op.type in EXCHANGE or is_remote(op))


def has_placement(program: ProgramOfJob) -> bool:
    """Whether variables of a program, or of the trainer's that it was made from, are on servers."""
    return trained_program(program)[1] is not None


def trained_program(program: ProgramOfJob) -> tuple[ProgramOfJob, ParameterServerJob | None]:
    """A program, or the trainer's that it was derived from, and its job if that has servers."""
    trained = program.job.trainer if isinstance(program.job, DerivedJob) else program
    return trained, trained.job if isinstance(trained.job, ParameterServerJob) else None
