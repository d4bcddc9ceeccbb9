"""The program of a trainer: gradients are sent, parameters received, nothing is updated (B.5)."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.program import OpRole
from fluid.distributed.sharding import ShardingPlan, Shards
from fluid.framework import Block, Operator, Program
from fluid.recording import pruning
from fluid.recording.annotations import Attributes, SlotValue
from fluid.recording.var_types import VarDesc
from fluid.transpiler.distribute.clipping import GlobalNorm
from fluid.transpiler.distribute.names import control_name
from fluid.transpiler.distribute.remote import replace_lookups, send_table
from fluid.transpiler.distribute.updates import Updates

__all__ = ["append_concats", "append_recv", "create_blocks", "rewrite_trainer"]

SELECTED_ROWS = VarDesc.VarType.SELECTED_ROWS


def rewrite_trainer(
    program: Program, updates: Updates, plan: ShardingPlan, trainer_id: int
) -> None:
    """Replace the updates of a program by the exchange with servers, in place.

    Raises ValueError where no op computes the gradient of a parameter.
    """
    Rewriting(program, updates, plan, trainer_id).run()


class Rewriting:
    """The rewrite of one trainer program."""

    def __init__(
        self, program: Program, updates: Updates, plan: ShardingPlan, trainer_id: int
    ) -> None:
        self.program, self.block = program, program.global_block()
        self.updates, self.plan, self.trainer_id = updates, plan, trainer_id
        self.controls: dict[str, str] = {}
        self.factor = ""

    def run(self) -> None:
        """Rewrite the program."""
        ops = list(self.block.ops)
        removed = {id(ops[index]) for index in self.updates.removed}
        for index in self.updates.clipping.on_trainer:
            ops[index].set_attr("op_role", int(OpRole.BACKWARD))
        pruning.drop_ops(self.program, lambda op: id(op) in removed)
        replace_lookups(self.block, self.plan, self.trainer_id)
        for shards in self.plan.shards:
            self._send_gradient(shards)
        if self.plan.table is not None:
            name = send_table(self.block, self.plan, self.trainer_id)
            self.controls[self.plan.table.name] = name
        self._send_counters()
        self._receive(self._barrier())

    # ---- gradients

    def _send_gradient(self, shards: Shards) -> None:
        """Send the gradient of a parameter as soon as it is computed, in blocks if it is sliced."""
        index = self._behind(shards)
        norm = self._norm(shards.param)
        if self.plan.runtime_split:
            names = [self._sent(part.named(shards.gradient)) for part in shards.slices]
            attrs = {"send_varnames": names, "sections": shards.rows}
            self._insert_send(index, shards, [shards.gradient], attrs, norm)
        elif len(shards.slices) == 1:
            name = self._sent(shards.gradient)
            if name != shards.gradient:
                rename_everywhere(self.program, shards.gradient, name)
            self._insert_send(index, shards, [name], {}, norm)
        else:
            blocks = self._insert_split(index, shards)
            self._insert_send(index + 1, shards, blocks, {}, norm)

    def _behind(self, shards: Shards) -> int:
        """The index after the last op that computes a gradient.

        If `send` clips by the norm of several gradients, the index after all of these.
        """
        clip = self.updates.clipping.sent
        names = {shards.gradient}
        if clip is not None and shards.param in clip.scaled:
            names = {self.plan.of(param).gradient for param in clip.scaled}
            names |= {self._sent(name) for name in names}
        indices = [i for i, op in enumerate(self.block.ops) if names.intersection(op.writes())]
        if not indices:
            raise ValueError(
                f"no op computes {shards.gradient!r}, the gradient of parameter {shards.param!r}; "
                "transpile the program that optimizer.minimize returned from"
            )
        while indices[-1] + 1 < len(self.block.ops) and self._is_send(indices[-1] + 1):
            indices[-1] += 1
        return indices[-1] + 1

    def _is_send(self, index: int) -> bool:
        """Whether the op at an index sends, or splits a variable that is sent."""
        return self.block.ops[index].type in ("send", "split_byref", "split_selected_rows")

    def _insert_split(self, index: int, shards: Shards) -> list[str]:
        """Split a gradient into blocks; returns their names."""
        whole = self.block.var(shards.gradient)
        blocks = [self._sent(part.named(shards.gradient)) for part in shards.slices]
        for name, part in zip(blocks, shards.slices, strict=True):
            self.block.create_var(
                name=name,
                persistable=False,
                shape=part.shape,
                dtype=whole.dtype,
                type=whole.type,
            )
        kind, sections = ("split_byref", "sections")
        if shards.is_sparse:
            kind, sections = ("split_selected_rows", "height_sections")
        attrs = {sections: shards.rows, "op_role": int(OpRole.DIST)}
        slots = {"inputs": {"X": shards.gradient}, "outputs": {"Out": blocks}}
        self.block.insert_op(index, kind, **slots, attrs=attrs)
        return blocks

    def _insert_send(
        self,
        index: int,
        shards: Shards,
        names: list[str],
        added: Attributes,
        norm: GlobalNorm | None,
    ) -> None:
        control = self.controls[shards.param] = new_control(self.block)
        single = names[0] if len(names) == 1 else shards.gradient
        inputs: dict[str, SlotValue] = {"X": names}
        outputs: dict[str, SlotValue] = {"Out": control}
        attrs: dict[str, object] = {
            "epmap": shards.endpoints,
            "op_role": int(OpRole.RPC),
            "op_role_var": [shards.param, single],
            **added,
        }
        if norm is not None:
            self._clip_sent(norm, inputs, outputs, attrs)
        self.block.insert_op(index, "send", inputs=inputs, outputs=outputs, attrs=attrs)

    def _norm(self, param: str) -> GlobalNorm | None:
        """The clip that `send` applies to the gradient of a parameter."""
        norm = self.updates.clipping.sent
        return norm if norm is not None and param in norm.scaled else None

    def _clip_sent(
        self,
        norm: GlobalNorm,
        inputs: dict[str, SlotValue],
        outputs: dict[str, SlotValue],
        attrs: dict[str, object],
    ) -> None:
        """Let a `send` scale its gradients; the first one computes the factor."""
        if self.factor:
            inputs["Factor"] = self.factor
            return
        self.factor = norm.scale
        self.block.create_var(name=self.factor, shape=[1], dtype="float32")
        inputs["ClipX"] = [self.plan.of(param).gradient for param in norm.scaled]
        outputs["Scale"], attrs["clip_norm"] = self.factor, norm.limit

    def _sent(self, name: str) -> str:
        return self.plan.sent_name(name, self.trainer_id)

    # ---- the end of a step

    def _send_counters(self) -> None:
        """Advance the learning-rate schedule of every server by one step of this trainer."""
        for counter in self.plan.counters:
            for trainer in range(self.plan.trainers):
                name = self.plan.counter_name(counter, trainer)
                self.block.create_var(name=name, shape=[1], dtype="int64", persistable=True)
            name = self.plan.counter_name(counter, self.trainer_id)
            attrs = {
                "epmap": list(self.plan.endpoints),
                "merge_add": True,
                "use_send_handler": False,
                "op_role": int(OpRole.RPC),
                "op_role_var": [counter, counter],
            }
            out = {"Out": new_control(self.block)}
            self.block.append_op("send", inputs={"X": name}, outputs=out, attrs=attrs)

    def _barrier(self) -> str:
        """End a synchronous step with a barrier; returns the control variable for `recv` ops, or
        "".
        """
        half_async = self.plan.runtime_split and self.plan.half_async
        if not (self.plan.synchronous or half_async):
            return ""
        out = new_control(self.block)
        attrs = {
            "endpoints": list(self.plan.endpoints),
            "trainer_id": self.trainer_id,
            "half_async": half_async,
            "op_role": int(OpRole.RPC),
        }
        sent = {"X": list(self.controls.values())}
        self.block.append_op("send_barrier", inputs=sent, outputs={"Out": out}, attrs=attrs)
        return out if self.plan.synchronous else ""

    def _receive(self, barrier: str) -> None:
        received: list[str] = []
        dense = [shard for shard in self.plan.shards if not shard.is_remote]
        for shards in dense:
            control = barrier or self.controls[shards.param]
            received += append_recv(self.block, shards, self.plan, self.trainer_id, control)
        if barrier:
            attrs = {
                "endpoints": list(self.plan.endpoints),
                "trainer_id": self.trainer_id,
                "op_role": int(OpRole.RPC),
            }
            self.block.append_op("fetch_barrier", {"X": barrier}, {"Out": received}, attrs)
        if not self.plan.runtime_split:
            append_concats(self.block, dense, OpRole.DIST)


def new_control(block: Block) -> str:
    """Declare a control variable, which orders ops; its name."""
    name = control_name(block)
    block.create_var(name=name, shape=[0], dtype="float32", persistable=False)
    return name


def rename_everywhere(program: Program, old: str, new: str) -> None:
    """Rename a variable in every block and in `op_role_var`."""
    program.global_block().rename_var(old, new)
    for block in program.blocks:
        for op in block.ops:
            op.rename_input(old, new)
            op.rename_output(old, new)
            _rename_role(op, old, new)


def _rename_role(op: Operator, old: str, new: str) -> None:
    named = op.attrs.get("op_role_var")
    if named and old in named:
        op.set_attr("op_role_var", [new if name == old else name for name in named])


def create_blocks(block: Block, shards: Shards) -> list[str]:
    """Declare the blocks of a parameter where a trainer receives them; their names."""
    names = [part.name for part in shards.slices]
    if len(names) > 1:
        dtype = block.var(shards.param).dtype
        for part in shards.slices:
            block.create_var(name=part.name, shape=part.shape, dtype=dtype, persistable=False)
    return names


def append_recv(
    block: Block, shards: Shards, plan: ShardingPlan, trainer_id: int, control: str, *,
    joined: bool | None = None,
) -> list[str]:  # fmt: skip
    """Receive a parameter, or its blocks unless `recv` joins them; returns the received names."""
    whole = plan.runtime_split if joined is None else joined
    names = [shards.param] if whole else create_blocks(block, shards)
    attrs: dict[str, object] = {
        "epmap": shards.endpoints,
        "trainer_id": trainer_id,
        "recv_varnames": [part.name for part in shards.slices] if whole else [],
        "op_role": int(OpRole.RPC),
        "op_role_var": [shards.param, plan.sent_name(shards.gradient, trainer_id)],
    }
    inputs = {"X": control} if control else {}
    block.append_op("recv", inputs=inputs, outputs={"Out": names}, attrs=attrs)
    return names


def append_concats(block: Block, shards: Sequence[Shards], role: OpRole) -> None:
    """Join the blocks of each parameter that has several."""
    for shard in shards:
        if len(shard.slices) > 1:
            parts = {"X": [part.name for part in shard.slices]}
            attrs = {"axis": 0, "op_role": int(role)}
            block.append_op("concat", inputs=parts, outputs={"Out": shard.param}, attrs=attrs)
