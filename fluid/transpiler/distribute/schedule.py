"""The learning-rate schedule on servers: it runs once per step, before the updates (B.6)."""

from __future__ import annotations

from compiler.ir.program import BlockRef, OpRole
from fluid.framework import Block, Operator
from fluid.transpiler.distribute.server_builder import ServerBuilder

__all__ = ["copy_schedule"]


def copy_schedule(server: ServerBuilder, block: Block) -> None:
    """Copy the ops of the schedule into a block of a server, with the blocks that they own.

    If trainers are asynchronous, they advance the counter: it is the sum of the counts each has
    sent, so that the rate decays with the total number of steps of all trainers.
    """
    for index in server.updates.schedule:
        op = server.source.ops[index]
        if op.type == "increment" and op.writes()[0] in server.plan.counters:
            _add_counter(server, block, op)
        else:
            _copy(server, block, op)


def _add_counter(server: ServerBuilder, block: Block, op: Operator) -> None:
    counter = op.writes()[0]
    server.declare(counter, initialised=True)
    trainers = range(server.plan.trainers)
    shares = [server.plan.counter_name(counter, trainer) for trainer in trainers]
    for name in shares:
        server.declare(name, counter, persistable=True)
    attrs = {"op_role": int(OpRole.LRSCHED)}
    block.append_op("sum", inputs={"X": shares}, outputs={"Out": counter}, attrs=attrs)


def _copy(server: ServerBuilder, block: Block, op: Operator) -> None:
    """Copy an op, its blocks first becoming blocks inside `block`."""
    copied = server.copy_op(block, op, {})
    for name, value in op.attrs.items():
        if isinstance(value, BlockRef):
            inner = server.program.add_block(block.idx)
            _copy_block(server, server.origin.block(value), inner)
            copied.set_attr(name, BlockRef(inner.idx))


def _copy_block(server: ServerBuilder, source: Block, target: Block) -> None:
    for var in source.vars.values():
        target.clone_variable(var, force_persistable=False)
    for op in source.ops:
        copied = server.copy_inner(target, op)
        for name, value in op.attrs.items():
            if isinstance(value, BlockRef):
                inner = server.program.add_block(target.idx)
                _copy_block(server, server.origin.block(value), inner)
                copied.set_attr(name, BlockRef(inner.idx))
