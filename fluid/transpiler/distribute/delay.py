"""Delay compensation of asynchronous trainers, DC-ASGD: a stale gradient is corrected.

corrected = g + g * g * (parameter now - parameter that the trainer received). S. Zheng et al.,
"Asynchronous Stochastic Gradient Descent with Delay Compensation", ICML 2017.
"""

from __future__ import annotations

from fluid.distributed.sharding import Slice
from fluid.framework import Block
from fluid.parameter_server.names import BACKUP, TRAINER, backup_name
from fluid.transpiler.distribute.server_builder import ServerBuilder

__all__ = ["compensate_delay"]


def compensate_delay(server: ServerBuilder, block: Block, part: Slice, gradient: str) -> str:
    """Append the correction of a gradient to a block; returns the corrected variable."""
    backups = [backup_name(part.name, trainer) for trainer in range(server.plan.trainers)]
    for name in backups:
        server.declare(name, part.param, part, persistable=True)
    local = f"{part.name}.local{BACKUP}"
    server.declare(local, part.param, part, persistable=False)
    server.block.create_var(name=TRAINER, shape=[1], dtype="int64", persistable=False)
    read = {"X": backups, "TrainerId": TRAINER}
    block.append_op("ref_by_trainer_id", inputs=read, outputs={"Out": local})
    moved = _add(server, block, part, "elementwise_sub", part.name, local)
    once = _add(server, block, part, "elementwise_mul", moved, gradient)
    twice = _add(server, block, part, "elementwise_mul", once, gradient)
    return _add(server, block, part, "elementwise_add", gradient, twice)


def _add(server: ServerBuilder, block: Block, part: Slice, kind: str, x: str, y: str) -> str:
    """Append a binary op; returns its output variable."""
    number = sum(name.startswith("tmp_dc_output_") for name in server.block.vars)
    name = f"tmp_dc_output_{number}"
    server.declare(name, part.param, part, persistable=False)
    block.append_op(kind, inputs={"X": x, "Y": y}, outputs={"Out": name})
    return name
