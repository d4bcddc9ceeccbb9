"""Geo-SGD: trainers update locally, and servers add up the parameter deltas."""

from __future__ import annotations

from compiler.ir.program import OpRole
from fluid.distributed.sharding import ShardingPlan
from fluid.framework import Program
from fluid.transpiler.distribute.trainer import append_recv, new_control

__all__ = ["DELTA", "rewrite_geo_trainer"]

DELTA = ".delta"
"""The suffix of a block's name for the delta by which trainers changed it."""


def rewrite_geo_trainer(program: Program, plan: ShardingPlan, trainer_id: int) -> None:
    """Exchange parameters with the communicator in every step, in place.

    `send` passes the current parameter, under the names of the deltas: the communicator sends
    now - last received every `geo_sgd_need_push_nums` steps, and answers `recv` with the server's
    parameter plus the delta not sent yet.
    """
    block = program.global_block()
    for shards in plan.shards:
        control = new_control(block)
        attrs = {
            "epmap": shards.endpoints,
            "send_varnames": [part.name + DELTA for part in shards.slices],
            "sections": shards.rows,
            "op_role": int(OpRole.RPC),
            "op_role_var": [shards.param, shards.param],
        }
        block.append_op("send", {"X": shards.param}, {"Out": control}, attrs)
        append_recv(block, shards, plan, trainer_id, control, joined=True)
