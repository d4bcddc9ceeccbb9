"""The program of a server: a block for each slice that it holds, which updates it (B.6).

Block 0 declares the variables and has `listen_and_serv`. Blocks of the learning-rate schedule come
first, then one that clips by global norm if there is such a clip, then one for each slice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from compiler.ir.program import MAIN_BLOCK, BlockRef, OpRole
from fluid.distributed.sharding import DistributedMode, ShardingPlan, Shards, Slice
from fluid.framework import Block, Program
from fluid.transpiler.distribute.config import ServerRuntimeConfig
from fluid.transpiler.distribute.delay import compensate_delay
from fluid.transpiler.distribute.geo import DELTA
from fluid.transpiler.distribute.schedule import copy_schedule
from fluid.transpiler.distribute.server_builder import InitialValue, ServerBuilder
from fluid.transpiler.distribute.server_table import add_table_blocks
from fluid.transpiler.distribute.updates import Updates, private_names

__all__ = ["make_server"]


def make_server(
    origin: Program,
    updates: Updates,
    plan: ShardingPlan,
    endpoint: str,
    threads: ServerRuntimeConfig,
) -> tuple[Program, Mapping[str, InitialValue]]:
    """The program of a server, and the initial values of its variables.

    `origin` is the program before it was rewritten.
    """
    server = ServerBuilder(origin, updates, plan, endpoint)
    geo = server.plan.mode is DistributedMode.GEO
    owned = server.plan.owned(server.endpoint)
    if not owned and server.plan.table is None:
        warnings.warn(
            f"server {server.endpoint} holds no parameter: there are more servers than blocks; "
            "use fewer servers or a smaller config.min_block_size",
            stacklevel=2,
        )
    if not geo:
        _add_schedule(server)
        _add_clip(server, owned)
    parent = len(server.program.blocks) - 1
    for shards, part in owned:
        added = _add_geo(server, parent, part) if geo else _add_update(server, parent, shards, part)
        server.optimize.append(BlockRef(added.idx))
    if not server.optimize:
        server.optimize.append(BlockRef(server.program.add_block(parent).idx))
    if server.plan.table is not None and not geo:
        add_table_blocks(server, server.plan.table, parent)
    _keep_shared(server)
    _serve(server, threads)
    return server.program, server.initial


def _add_schedule(server: ServerBuilder) -> None:
    """Blocks that compute the learning rate, if there is a schedule."""
    if not server.updates.schedule:
        return
    block = server.program.add_block(MAIN_BLOCK)
    copy_schedule(server, block)
    server.attrs["lr_decay_block_id"] = block.idx
    server.optimize.insert(0, BlockRef(block.idx))


def _add_clip(server: ServerBuilder, held: Iterable[tuple[Shards, Slice]]) -> None:
    """Add a block that computes the clip factor of merged gradients (`clipping`)."""
    norm = server.updates.clipping.merged
    if norm is None:
        return
    block = server.program.add_block(len(server.program.blocks) - 1)
    server.attrs["clip_block_id"] = block.idx
    server.optimize.append(BlockRef(block.idx))
    terms = [_add_square(server, block, *entry) for entry in held if entry[0].param in norm.squares]
    total = server.source.ops[norm.total].writes()[0]
    server.declare(total, shape=(1,))
    _add_total(server, block, terms, total)
    out = {"X": [total]}, {"Out": [total]}
    block.add_op("sum_over_servers", *out, {"op_role": int(OpRole.OPTIMIZE)})
    for index in norm.factor:
        server.copy_op(block, server.source.ops[index], {})


def _add_total(server: ServerBuilder, block: Block, terms: list[str], total: str) -> None:
    """Sum the squares of this server's gradients; 0 if it holds none."""
    role = {"op_role": int(OpRole.OPTIMIZE)}
    if terms:
        block.append_op("sum", inputs={"X": terms}, outputs={"Out": total}, attrs=role)
        return
    attrs = {"shape": [1], "dtype": int(server.block.var(total).dtype), "value": 0.0, **role}
    block.append_op("fill_constant", outputs={"Out": total}, attrs=attrs)


def _add_square(server: ServerBuilder, block: Block, shards: Shards, part: Slice) -> str:
    """Merge the gradient of a slice and sum its squares; returns the variable's name."""
    norm = server.updates.clipping.merged
    assert norm is not None
    _merge(server, block, shards, part)
    names = {shards.gradient: part.named(shards.gradient)}
    for index in norm.squares[shards.param]:
        for name in server.source.ops[index].writes():
            names[name] = server.plan.private_name(name, part)
        server.copy_op(block, server.source.ops[index], names, part)
    return names[norm.norms[shards.param]]


def _add_update(server: ServerBuilder, parent: int, shards: Shards, part: Slice) -> Block:
    """A block that merges the gradient of a slice and updates the slice."""
    block = server.program.add_block(parent)
    update = server.by_param[shards.param]
    gradient = part.named(shards.gradient)
    norm = server.updates.clipping.merged
    server.declare(part.name, shards.param, part, persistable=True, initialised=True)
    if norm is None or shards.param not in norm.squares:
        _merge(server, block, shards, part)
    names = {shards.param: part.name, shards.gradient: gradient}
    for name in private_names(server.origin, server.updates, update):
        names[name] = server.plan.private_name(name, part)
    if server.plan.dc_asgd:
        names[shards.gradient] = compensate_delay(server, block, part, gradient)
    for index in update.ops:
        server.copy_op(block, server.source.ops[index], names, part)
    server.grad_blocks.append(f"{gradient}:{block.idx}")
    if shards.is_sparse:
        server.sparse.append(f"{gradient}:{part.name}")
    return block


def _merge(server: ServerBuilder, block: Block, shards: Shards, part: Slice) -> None:
    """Compute the mean of the trainers' gradients, if the server waits for all of them."""
    name = part.named(shards.gradient)
    server.declare(name, shards.gradient, part, persistable=True)
    if not server.plan.merges:
        server.received.append(name)
        return
    sent = [server.plan.sent_name(name, trainer) for trainer in range(server.plan.trainers)]
    for sent_name in sent:
        server.declare(sent_name, shards.gradient, part, persistable=False)
    server.received += sent
    role = {"op_role": int(OpRole.FORWARD)}
    block.append_op("sum", inputs={"X": sent}, outputs={"Out": name}, attrs=role)
    scale = {"scale": 1.0 / server.plan.trainers, **role}
    block.append_op("scale", inputs={"X": name}, outputs={"Out": name}, attrs=scale)


def _add_geo(server: ServerBuilder, parent: int, part: Slice) -> Block:
    """A block that adds a trainer's delta to a slice."""
    block = server.program.add_block(parent)
    delta = part.name + DELTA
    server.declare(part.name, part.param, part, persistable=True, initialised=True)
    server.declare(delta, part.param, part, persistable=False)
    inputs = {"X": [part.name, delta]}
    block.append_op("sum", inputs=inputs, outputs={"Out": part.name})
    server.grad_blocks.append(f"{delta}:{block.idx}")
    server.received.append(delta)
    return block


def _keep_shared(server: ServerBuilder) -> None:
    """Make variables that one block writes and another reads persistable."""
    used: dict[str, set[int]] = {}
    for block in server.program.blocks[1:]:
        for op in block.ops:
            for name in [*op.reads(), *op.writes()]:
                used.setdefault(name, set()).add(block.idx)
    written = {n for block in server.program.blocks for op in block.ops for n in op.writes()}
    for name, blocks in used.items():
        var = server.block.vars.get(name)
        if var is not None and var.holds_tensor and name in written and len(blocks) > 1:
            var.persistable = True


def _serve(server: ServerBuilder, threads: ServerRuntimeConfig) -> None:
    """Append `listen_and_serv`, with the role of each block."""
    attrs = {
        "endpoint": server.endpoint,
        "pserver_id": server.plan.endpoints.index(server.endpoint),
        "Fanin": server.plan.trainers,
        "distributed_mode": int(server.plan.mode),
        "sync_mode": server.plan.merges,
        "dc_asgd": server.plan.dc_asgd,
        "grad_to_block_id": sorted(server.grad_blocks),
        "sparse_grad_to_param": sorted(server.sparse),
        "optimize_blocks": list(server.optimize),
        **threads.attributes(),
        "op_role": int(OpRole.FORWARD),
        **server.attrs,
    }
    server.block.append_op("listen_and_serv", inputs={"X": server.received}, attrs=attrs)
