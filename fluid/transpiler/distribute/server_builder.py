"""What the builders of a server's program share: its parts so far, and copies into them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler.ir.conversion.reused_names import slots_renamed
from compiler.ir.program import BlockRef
from compiler.support.dataclass import dataclass
from fluid.distributed.sharding import ShardingPlan, Slice
from fluid.framework import Block, Operator, Program
from fluid.transpiler.distribute.updates import Updates

__all__ = ["InitialValue", "ServerBuilder"]

NO_NAMES: Mapping[str, str] = MappingProxyType({})
NONE = -1
"""Index that means no block."""


@dataclass(frozen=True)
class InitialValue:
    """The initial value of a server's variable: an original variable, or a slice of it."""

    origin: str
    part: Slice | None


class ServerBuilder:
    """A server's program that is being built from `origin`, the program before it was rewritten.

    `initial` has the variables that the startup program initialises, `attrs` attributes of
    `listen_and_serv`, whose inputs are the `received` gradients and whose blocks are `optimize`.
    """

    def __init__(
        self, origin: Program, updates: Updates, plan: ShardingPlan, endpoint: str
    ) -> None:
        self.origin, self.updates, self.plan, self.endpoint = origin, updates, plan, endpoint
        self.source = origin.global_block()
        self.program = Program()
        self.block = self.program.global_block()
        self.by_param = {update.param: update for update in updates.updates}
        self.attrs: dict[str, object] = {"lr_decay_block_id": NONE, "clip_block_id": NONE}
        self.attrs |= {"checkpint_block_id": NONE, "prefetch_var_name_to_block_id": []}
        self.grad_blocks: list[str] = []
        self.sparse: list[str] = []
        self.received: list[str] = []
        self.optimize: list[BlockRef] = []
        self.initial: dict[str, InitialValue] = {}

    def declare(
        self,
        name: str,
        like: str = "",
        part: Slice | None = None,
        *,
        shape: tuple[int, ...] | None = None,
        persistable: bool | None = None,
        initialised: bool = False,
    ) -> None:
        """Declare a variable in block 0 like one of the original program.

        A shape equal to the whole parameter's becomes the slice's. An `initialised` variable
        gets its value from the startup program, like the original one.
        """
        var = self.source.find_var_recursive(like or name)
        if name in self.block.vars or var is None:
            return
        is_persistable = var.persistable if persistable is None else persistable
        if not var.holds_tensor:
            self.block.create_var(name=name, persistable=is_persistable, type=var.type)
            return
        cut = part if part is not None and var.shape == part.whole else None
        self.block.create_var(
            name=name,
            persistable=is_persistable,
            type=var.type,
            shape=(shape or var.shape) if cut is None else cut.shape,
            dtype=var.dtype,
            lod_level=var.lod_level,
        )
        if initialised:
            self.initial[name] = InitialValue(like or name, cut)

    def copy_op(
        self, block: Block, op: Operator, names: Mapping[str, str], part: Slice | None = None
    ) -> Operator:
        """Append a copy of an op that reads and writes other names, and declare these."""
        for name in [*op.reads(), *op.writes()]:
            self.declare(names.get(name, name), name, part, initialised=True)
        return self.copy_inner(block, op, names)

    def copy_inner(
        self, block: Block, op: Operator, names: Mapping[str, str] = NO_NAMES
    ) -> Operator:
        """Append a copy of an op whose variables are declared."""
        attrs = {key: value for key, value in op.attrs.items() if key != "op_role_var"}
        inputs, outputs = slots_renamed(op.inputs, names), slots_renamed(op.outputs, names)
        return block.add_op(op.type, inputs, outputs, attrs, op.source)
