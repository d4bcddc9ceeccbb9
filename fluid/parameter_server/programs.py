"""Which programs are of jobs with parameter servers. Every run asks: nothing is loaded for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler.ir.conversion.remote_lookups import is_remote
from fluid.framework import Program

__all__ = ["exchanges", "has_placement", "serves", "sessions"]

EXCHANGE = {
    "send", "recv", "send_barrier", "fetch_barrier", "fetched", "prefetch",
    "distributed_lookup_table", "checkpoint_notify", "recv_save",
}  # fmt: skip

sessions: dict[tuple[int, tuple[str, ...]], Any] = {}
"""The open sessions of this process by the number of the trainer and its servers."""


def serves(program: Program) -> bool:
    """Whether a program is that of a server."""
    ops = program.global_block().ops
    return any(op.type == "listen_and_serv" for op in ops[-1:])


def exchanges(program: Program) -> Iterator[Any]:
    """The ops of a trainer's program that exchange something with servers."""
    ops = (op for block in program.blocks for op in block.ops)
    return (op for op in ops if op.type in EXCHANGE or is_remote(op))


def has_placement(program: Program) -> bool:
    """Whether variables of a program, or of the trainer's that it was made from, are on servers."""
    trained: Program = getattr(program, "_trained_by", program)
    placements = (getattr(owner, "_parameters_on_pservers", None) for owner in (program, trained))
    return any(placement is not None for placement in placements)
