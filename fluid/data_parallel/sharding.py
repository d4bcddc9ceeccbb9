"""The Reduce strategy: each parameter is updated by one device, which owns its optimizer state.

Gradients are reduced to the owner, only the owner's program keeps the ops that update the
parameter, and the new value is broadcast after the update. Results equal those of AllReduce: a
gradient that other devices read too, for example for a global-norm clip, is all-reduced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod

from compiler.ir.program import OpDesc, OpRole, VarDesc, VarKind
from compiler.support.dataclass import dataclass
from fluid.data_parallel.rewrite import (
    gradient_pairs,
    insert_gradient_scale,
    set_rank_count,
    sum_of,
)
from fluid.framework import Program
from fluid.recording.annotations import Attributes

__all__ = ["ParameterOwners", "find_shards", "sharded"]


@dataclass(frozen=True)
class ParameterOwners:
    """Assignment of parameters, and of their optimizer state, to ranks.

    `owner` maps parameters to ranks, `state` maps persistable variables that only the owner's ops
    access to their parameter.
    """

    owner: Mapping[str, int]
    state: Mapping[str, str]

    def owner_of_state(self, name: str) -> int | None:
        """The rank that holds an optimizer variable; None where every rank does."""
        param = self.state.get(name)
        return None if param is None else self.owner[param]

    def are_spread(self, devices: int, ranks: int) -> bool:
        """Whether no single trainer, of `devices` devices each, owns the state of all optimizers.

        Such an owner could not detect that other trainers read the state. A single trainer may own
        all.
        """
        trainers = {rank // devices for rank in self.owners_of_state().values()}
        return devices == ranks or len(trainers) != 1

    def owners_of_state(self) -> dict[str, int]:
        """The rank that holds each optimizer variable with an owner."""
        return {name: self.owner[param] for name, param in self.state.items()}


def find_shards(program: Program, ranks: int) -> ParameterOwners:
    """Assign each updated parameter to a rank, balancing the bytes per rank.

    Parameters are assigned in order of decreasing size to the rank with the fewest bytes.
    Parameters updated in a sub-block or more than once have no owner: every rank updates them. The
    same holds for compressed gradients, whose momentum each rank needs, and for sparse gradients:
    ranks exchange their rows, since a broadcast would copy the whole table.
    """
    updates = _updates(program)
    block = program.global_block()
    sizes = {name: _nbytes(block.vars[name]) for name in updates}
    loads, owner = [0] * ranks, dict[str, int]()
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        rank = loads.index(min(loads))
        owner[name] = rank
        loads[rank] += sizes[name]
    return ParameterOwners(owner, _state(program, owner))


def sharded(
    program: Program,
    shards: ParameterOwners,
    ranks: int,
    scale: bool,
    fetch: Collection[str],
    fuse: bool = True,
) -> list[Program]:
    """The program of each rank. `scale` multiplies the gradient of the loss by 1/ranks.

    Fetched variables are computed on every rank, even if only an update needs them. Without `fuse`
    each gradient and each parameter is sent separately.
    """
    alone = {} if fuse else {"use_calc_stream": True}
    programs = [_trimmed(program, shards, rank, fetch, alone) for rank in range(ranks)]
    needed = [_gradients_read(device_program, shards) for device_program in programs]
    roots: dict[str, int] = {}
    for gradient, param in _pairs(program):
        readers = {rank for rank in range(ranks) if gradient in needed[rank]}
        if param in shards.owner and readers <= {shards.owner[param]}:
            roots[gradient] = shards.owner[param]
    for device_program in programs:
        _insert_reductions(device_program, roots, alone)
        set_rank_count(device_program, ranks)
        if scale:
            insert_gradient_scale(device_program, ranks)
    return programs


def _updates(program: Program) -> dict[str, OpDesc]:
    """The single op of the global block that updates each parameter with its own gradient."""
    params = {name for _, name in _pairs(program)}
    writers: dict[str, list[OpDesc]] = {}
    for block in program.blocks:
        for op in block.ops:
            for name in params.intersection(op.writes()):
                writers.setdefault(name, []).append(op)
    main = program.global_block().ops
    alone = {name: ops[0] for name, ops in writers.items() if len(ops) == 1}
    alone = {name: op for name, op in alone.items() if op.type != "dgc_momentum"}
    variables = program.global_block().vars
    sparse = {p for g, p in _pairs(program) if variables[g].kind == VarKind.SELECTED_ROWS}
    alone = {name: op for name, op in alone.items() if name not in sparse}
    return {name: op for name, op in alone.items() if _is_update(op) and op in main}


def _nbytes(var: VarDesc) -> int:
    return prod(var.dims or ()) * var.element.numpy.itemsize


def _is_update(op: OpDesc) -> bool:
    return bool(op.role & OpRole.OPTIMIZE) and not op.role & OpRole.LRSCHED


def _pairs(program: Program) -> list[tuple[str, str]]:
    """(gradient, parameter) of every op of the backward pass."""
    ops = program.global_block().ops
    return [(grad, param) for op in ops for param, grad in gradient_pairs(op)]


def _state(program: Program, owner: Mapping[str, int]) -> dict[str, str]:
    """Persistable variables that only ops of one owned parameter read or write."""
    main = program.global_block()
    users: dict[str, set[str | None]] = {}
    for block in program.blocks:
        for op in block.ops:
            for name in {*op.reads(), *op.writes()}:
                users.setdefault(name, set()).add(_param_of(op, owner))
    owners: dict[str, str] = {}
    for name, params in users.items():
        var, (param, *others) = main.vars.get(name), params
        if var is not None and var.persistable and name not in owner and not others and param:
            owners[name] = param
    return owners


def _param_of(op: OpDesc, owner: Mapping[str, int]) -> str | None:
    """The owned parameter that an optimizer op belongs to."""
    if not _is_update(op):
        return None
    names = op.attrs.get("op_role_var") or op.writes()
    return next((name for name in names if name in owner), None)


def _trimmed(
    program: Program,
    shards: ParameterOwners,
    rank: int,
    fetch: Collection[str],
    alone: Attributes,
) -> Program:
    """A clone in which updates of other ranks' parameters are replaced by broadcasts from their
    owners.
    """
    clone = program.clone()
    block = clone.global_block()
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        names = [name for name in op.writes() if name in shards.owner] if _is_update(op) else []
        for name in names:
            role = int(OpRole.OPTIMIZE)
            attrs = {"root": shards.owner[name], "ring_id": 0, "op_role": role, **alone}
            block.insert_op(index + 1, "c_broadcast", {"X": name}, {"Out": name}, attrs)
        if names and all(shards.owner[name] != rank for name in names):
            block.remove_op(index)
    _remove_unread(clone, shards, rank, fetch)
    return clone


def _remove_unread(
    program: Program, shards: ParameterOwners, rank: int, fetch: Collection[str]
) -> None:
    """Remove optimizer ops whose results this rank neither reads nor owns."""
    block = program.global_block()
    inner = [name for other in program.blocks[1:] for op in other.ops for name in op.reads()]
    read = {*fetch, *inner}
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        is_needed = any(
            name in read or _is_kept(program, shards, rank, name) for name in op.writes()
        )
        if _is_update(op) and op.type != "c_broadcast" and not is_needed:
            block.remove_op(index)
        else:
            read.update(op.reads())


def _is_kept(program: Program, shards: ParameterOwners, rank: int, name: str) -> bool:
    var = program.global_block().find_var_recursive(name)
    persistable = var is not None and var.persistable
    return persistable and shards.owner_of_state(name) in (None, rank)


def _gradients_read(program: Program, shards: ParameterOwners) -> set[str]:
    """The parameter gradients that ops after the backward pass read, in all blocks."""
    gradients = {gradient for gradient, _ in _pairs(program)}
    ops: Iterable[OpDesc] = (op for block in program.blocks for op in block.ops)
    later = (op for op in ops if not op.role & OpRole.BACKWARD)
    return {name for op in later for name in op.reads() if name in gradients}


def _insert_reductions(program: Program, roots: Mapping[str, int], alone: Attributes) -> None:
    """Reduce each gradient right after the op that completes it: to its root, or to all ranks."""
    block = program.global_block()
    for index, op in reversed(list(enumerate(block.ops))):
        for offset, (_, gradient) in enumerate(gradient_pairs(op)):
            root = roots.get(gradient)
            kind, inputs, attrs = sum_of(op)
            if root is not None:
                kind, attrs = "c_reduce_sum", {"root_id": root}
            attrs |= {"ring_id": 0, "op_role": int(OpRole.BACKWARD), **alone}
            slots = {"X": gradient, **inputs}, {"Out": gradient}
            block.insert_op(index + 1 + offset, kind, *slots, attrs)
