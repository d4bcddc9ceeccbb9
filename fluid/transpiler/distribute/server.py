"""The program of a server: a block for each slice that it holds, which updates it (B.6).

Block 0 declares the variables and has `listen_and_serv`. Blocks of the learning-rate schedule come
first, then one that clips by global norm if there is such a clip, then one for each slice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from compiler.ir.program import MAIN_BLOCK, BlockRef, OpRole
from fluid.framework import Block, Operator, Program
from fluid.transpiler.distribute.config import DistributedMode, ServerRuntimeConfig
from fluid.transpiler.distribute.delay import compensate_delay
from fluid.transpiler.distribute.geo import DELTA
from fluid.transpiler.distribute.plan import ShardingPlan, Shards
from fluid.transpiler.distribute.schedule import copy_schedule
from fluid.transpiler.distribute.server_startup import Held
from fluid.transpiler.distribute.server_table import add_table_blocks
from fluid.transpiler.distribute.slicing import Slice
from fluid.transpiler.distribute.updates import Updates, private_names

__all__ = ["Server", "make_server"]

NO_NAMES: Mapping[str, str] = MappingProxyType({})
NONE = -1
"""Index that means no block."""


def make_server(
    origin: Program,
    updates: Updates,
    plan: ShardingPlan,
    endpoint: str,
    threads: ServerRuntimeConfig,
) -> Program:
    """The program of a server; `origin` is the program before it was rewritten."""
    return Server(origin, updates, plan, endpoint, threads).made()


class Server:
    """Builder of a server's program."""

    def __init__(
        self,
        origin: Program,
        updates: Updates,
        plan: ShardingPlan,
        endpoint: str,
        threads: ServerRuntimeConfig,
    ) -> None:
        self.threads = threads
        self.origin, self.updates, self.plan, self.endpoint = origin, updates, plan, endpoint
        self.source = origin.global_block()
        self.program = Program()
        self.block = self.program.global_block()
        self.by_param = {update.param: update for update in updates.updates}
        self.attrs: dict[str, Any] = {"lr_decay_block_id": NONE, "clip_block_id": NONE}
        self.attrs |= {"checkpint_block_id": NONE, "prefetch_var_name_to_block_id": []}
        self.grad_blocks: list[str] = []
        self.sparse: list[str] = []
        self.received: list[str] = []
        self.optimize: list[BlockRef] = []
        self.held: dict[str, Held] = {}

    def made(self) -> Program:
        """Build the program."""
        geo = self.plan.mode is DistributedMode.GEO
        owned = self.plan.owned(self.endpoint)
        if not owned and self.plan.table is None:
            warnings.warn(
                f"server {self.endpoint} holds no parameter: there are more servers than blocks; "
                "use fewer servers or a smaller config.min_block_size",
                stacklevel=2,
            )
        if not geo:
            self._add_schedule()
            self._add_clip(owned)
        parent = len(self.program.blocks) - 1
        for shards, part in owned:
            added = self._add_geo(parent, part) if geo else self._add_update(parent, shards, part)
            self.optimize.append(BlockRef(added.idx))
        if not self.optimize:
            self.optimize.append(BlockRef(self.program.add_block(parent).idx))
        if self.plan.table is not None and not geo:
            add_table_blocks(self, parent)
        self._keep_shared()
        self._serve()
        self.program._held = self.held
        return self.program

    # ---- blocks

    def _add_schedule(self) -> None:
        """Blocks that compute the learning rate, if there is a schedule."""
        if not self.updates.schedule:
            return
        block = self.program.add_block(MAIN_BLOCK)
        copy_schedule(self, block)
        self.attrs["lr_decay_block_id"] = block.idx
        self.optimize.insert(0, BlockRef(block.idx))

    def _add_clip(self, held: Iterable[tuple[Shards, Slice]]) -> None:
        """Add a block that computes the clip factor of merged gradients (`clipping`)."""
        norm = self.updates.clipping.merged
        if norm is None:
            return
        block = self.program.add_block(len(self.program.blocks) - 1)
        self.attrs["clip_block_id"] = block.idx
        self.optimize.append(BlockRef(block.idx))
        terms = [
            self._add_square(block, *entry) for entry in held if entry[0].param in norm.squares
        ]
        total = self.source.ops[norm.total].writes()[0]
        self.declare(total, shape=(1,))
        self._add_total(block, terms, total)
        out = {"X": [total]}, {"Out": [total]}
        block.add_op("sum_over_servers", *out, {"op_role": int(OpRole.OPTIMIZE)})
        for index in norm.factor:
            self.copy_op(block, self.source.ops[index], {})

    def _add_total(self, block: Block, terms: list[str], total: str) -> None:
        """Sum the squares of this server's gradients; 0 if it holds none."""
        role = {"op_role": int(OpRole.OPTIMIZE)}
        if terms:
            block.append_op("sum", inputs={"X": terms}, outputs={"Out": total}, attrs=role)
            return
        attrs = {"shape": [1], "dtype": int(self.block.var(total).dtype), "value": 0.0, **role}
        block.append_op("fill_constant", outputs={"Out": total}, attrs=attrs)

    def _add_square(self, block: Block, shards: Shards, part: Slice) -> str:
        """Merge the gradient of a slice and sum its squares; returns the variable's name."""
        norm = self.updates.clipping.merged
        assert norm is not None
        self._merge(block, shards, part)
        names = {shards.gradient: part.named(shards.gradient)}
        for index in norm.squares[shards.param]:
            for name in self.source.ops[index].writes():
                names[name] = self.plan.private_name(name, part)
            self.copy_op(block, self.source.ops[index], names, part)
        return names[norm.norms[shards.param]]

    def _add_update(self, parent: int, shards: Shards, part: Slice) -> Block:
        """A block that merges the gradient of a slice and updates the slice."""
        block = self.program.add_block(parent)
        update = self.by_param[shards.param]
        gradient = part.named(shards.gradient)
        norm = self.updates.clipping.merged
        self.declare(part.name, shards.param, part, persistable=True, held=True)
        if norm is None or shards.param not in norm.squares:
            self._merge(block, shards, part)
        names = {shards.param: part.name, shards.gradient: gradient}
        for name in private_names(self.origin, self.updates, update):
            names[name] = self.plan.private_name(name, part)
        if self.plan.dc_asgd:
            names[shards.gradient] = compensate_delay(self, block, part, gradient)
        for index in update.ops:
            self.copy_op(block, self.source.ops[index], names, part)
        self.grad_blocks.append(f"{gradient}:{block.idx}")
        if shards.is_sparse:
            self.sparse.append(f"{gradient}:{part.name}")
        return block

    def _merge(self, block: Block, shards: Shards, part: Slice) -> None:
        """Compute the mean of the trainers' gradients, if the server waits for all of them."""
        name = part.named(shards.gradient)
        self.declare(name, shards.gradient, part, persistable=True)
        if not self.plan.merges:
            self.received.append(name)
            return
        sent = [self.plan.sent_name(name, trainer) for trainer in range(self.plan.trainers)]
        for sent_name in sent:
            self.declare(sent_name, shards.gradient, part, persistable=False)
        self.received += sent
        role = {"op_role": int(OpRole.FORWARD)}
        block.append_op("sum", inputs={"X": sent}, outputs={"Out": name}, attrs=role)
        scale = {"scale": 1.0 / self.plan.trainers, **role}
        block.append_op("scale", inputs={"X": name}, outputs={"Out": name}, attrs=scale)

    def _add_geo(self, parent: int, part: Slice) -> Block:
        """A block that adds a trainer's delta to a slice."""
        block = self.program.add_block(parent)
        delta = part.name + DELTA
        self.declare(part.name, part.param, part, persistable=True, held=True)
        self.declare(delta, part.param, part, persistable=False)
        inputs = {"X": [part.name, delta]}
        block.append_op("sum", inputs=inputs, outputs={"Out": part.name})
        self.grad_blocks.append(f"{delta}:{block.idx}")
        self.received.append(delta)
        return block

    # ---- variables and ops

    def declare(
        self,
        name: str,
        like: str = "",
        part: Slice | None = None,
        *,
        shape: tuple[int, ...] | None = None,
        persistable: bool | None = None,
        held: bool = False,
    ) -> None:
        """Declare a variable in block 0 like one of the original program.

        A shape equal to the whole parameter's becomes the slice's. A `held` variable is
        initialised like the original one.
        """
        var = self.source.find_var_recursive(like or name)
        if name in self.block.vars or var is None:
            return
        fields: dict[str, Any] = {"type": var.type}
        if var.holds_tensor:
            cut = part is not None and var.shape == part.whole
            fields |= {"shape": part.shape if part is not None and cut else shape or var.shape}
            fields |= {"dtype": var.dtype, "lod_level": var.lod_level}
            if held:
                self.held[name] = Held(like or name, part if cut else None)
        is_persistable = var.persistable if persistable is None else persistable
        self.block.create_var(name=name, persistable=is_persistable, **fields)

    def copy_op(
        self, block: Block, op: Operator, names: Mapping[str, str], part: Slice | None = None
    ) -> Operator:
        """Append a copy of an op that reads and writes other names, and declare these."""
        for name in [*op.reads(), *op.writes()]:
            self.declare(names.get(name, name), name, part, held=True)
        return self.copy_inner(block, op, names)

    def copy_inner(
        self, block: Block, op: Operator, names: Mapping[str, str] = NO_NAMES
    ) -> Operator:
        """Append a copy of an op whose variables are declared."""
        attrs = {key: value for key, value in op.attrs.items() if key != "op_role_var"}
        slots = [
            {
                slot: [names.get(name, name) for name in names_of_slot]
                for slot, names_of_slot in side.items()
            }
            for side in (op.inputs, op.outputs)
        ]
        return block.add_op(op.type, *slots, attrs, op.source)

    def _keep_shared(self) -> None:
        """Make variables that one block writes and another reads persistable."""
        used: dict[str, set[int]] = {}
        for block in self.program.blocks[1:]:
            for op in block.ops:
                for name in [*op.reads(), *op.writes()]:
                    used.setdefault(name, set()).add(block.idx)
        written = {n for block in self.program.blocks for op in block.ops for n in op.writes()}
        for name, blocks in used.items():
            var = self.block.vars.get(name)
            if var is not None and var.holds_tensor and name in written and len(blocks) > 1:
                var.persistable = True

    # ---- serving

    def _serve(self) -> None:
        """Append `listen_and_serv`, with the role of each block."""
        attrs = {
            "endpoint": self.endpoint,
            "pserver_id": self.plan.endpoints.index(self.endpoint),
            "Fanin": self.plan.trainers,
            "distributed_mode": int(self.plan.mode),
            "sync_mode": self.plan.merges,
            "dc_asgd": self.plan.dc_asgd,
            "grad_to_block_id": sorted(self.grad_blocks),
            "sparse_grad_to_param": sorted(self.sparse),
            "optimize_blocks": list(self.optimize),
            "rpc_get_thread_num": self.threads._rpc_get_thread_num,
            "rpc_send_thread_num": self.threads._rpc_send_thread_num,
            "rpc_prefetch_thread_num": self.threads._rpc_prefetch_thread_num,
            "op_role": int(OpRole.FORWARD),
            **self.attrs,
        }
        self.block.append_op("listen_and_serv", inputs={"X": self.received}, attrs=attrs)
