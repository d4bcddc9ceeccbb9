"""How a program updates its parameters: which ops, by which gradient, on which schedule."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from compiler.ir.opdef import is_registered
from compiler.ir.program import GRAD, BlockRef, OpRole
from compiler.support.dataclass import dataclass
from fluid.framework import Operator, Program, Variable
from fluid.transpiler.distribute.clipping import (
    Clipping,
    clip_ops,
    divide_clipping,
    read_clipping,
    role_names,
)

__all__ = [
    "ParameterUpdate",
    "Updates",
    "divide_updates",
    "needs_whole",
    "parameter",
    "private_names",
    "read_updates",
]

WHOLE_ONLY = {
    "lamb": "trust ratio",
    "lars_momentum": "local learning rate",
    "dpsgd": "clipping of the gradient",
    "clip_by_norm": "clipping of the gradient",
}
"""Ops that need the norm of the whole parameter or gradient, which therefore is not sliced."""


@dataclass(frozen=True)
class ParameterUpdate:
    """How one parameter is updated.

    `gradient` is the variable that backward computes for it, the parameter itself where backward
    updates it. `ops` are the numbers of the ops in
    the main block that decay, clip and update it, without those that run on trainers.
    """

    param: str
    gradient: str
    ops: tuple[int, ...]


@dataclass(frozen=True)
class Updates:
    """The updates that servers run, in their order, and the ops of the learning-rate schedule.

    `local` are the updates that stay on trainers, which then run the schedule as well.
    """

    updates: tuple[ParameterUpdate, ...]
    schedule: tuple[int, ...]
    clipping: Clipping
    local: tuple[ParameterUpdate, ...] = ()

    @property
    def removed(self) -> frozenset[int]:
        """The indices of the ops that trainers do not run."""
        ops = {index for update in self.updates for index in update.ops}
        schedule = () if self.local else self.schedule
        return frozenset(ops.union(schedule, self.clipping.on_servers))


def read_updates(program: Program, synchronous: bool, geo: bool = False) -> Updates:
    """Read the updates of a program.

    A program with gradients but no parameter has none. Raises ValueError for a program without
    gradients, where an op of an optimizer updates through a block of its
    own or belongs to no parameter, for an op type that is unknown, and except in GEO for a
    parameter that its gradient op updates.
    """
    ops = program.global_block().ops
    schedule = tuple(i for i, op in enumerate(ops) if op.role & OpRole.LRSCHED)
    clips = clip_ops(ops)
    optimize = [
        index
        for index, op in enumerate(ops)
        if op.role & OpRole.OPTIMIZE and index not in schedule and index not in clips
    ]
    owners = _owners(program, optimize)
    params = list(dict.fromkeys(owners[index] for index in optimize))
    by_gradients = [name for name in _updated_by_gradients(ops) if name not in params]
    if by_gradients and not geo:
        raise ValueError(
            f"{by_gradients[0]!r} is updated by the gradient op of its lookups, so servers cannot "
            "update it: use GEO (StrategyFactory.create_geo_strategy), which exchanges parameters"
        )
    if not (params or by_gradients or any(op.role & OpRole.BACKWARD for op in ops)):
        raise ValueError(
            "the program updates no parameter: call optimizer.minimize(loss) before transpile"
        )
    raw = _raw_gradients(ops)
    clipping = read_clipping(ops, clips, raw, synchronous)
    updates = [_update(param, ops, optimize, owners, raw, clipping) for param in params]
    updates += [ParameterUpdate(name, name, ()) for name in by_gradients]
    return Updates(tuple(updates), schedule, clipping)


def _updated_by_gradients(ops: list[Operator]) -> list[str]:
    """The parameters that gradient ops update, with no op of an optimizer, as `pyramid_hash`."""
    listed = [str(op.attrs.get("distribute_update_vars", "")) for op in ops]
    return list(dict.fromkeys(name for names in listed for name in names.split(",") if name))


def divide_updates(program: Program, updates: Updates, on_servers: Collection[str]) -> Updates:
    """The updates, with those of parameters that are not `on_servers` assigned to the trainers.

    Raises ValueError for a name that is no updated parameter, if no parameter is on a server,
    and as `divide_clipping` does.
    """
    params = [update.param for update in updates.updates]
    unknown = sorted(set(on_servers).difference(params))
    if unknown or not on_servers:
        what = f"{unknown[0]!r} is none" if unknown else "none is chosen"
        raise ValueError(
            f"params_on_servers must be parameters that the program updates, but {what}; there "
            f"are {', '.join(params)}"
        )
    return replace(
        updates,
        updates=tuple(update for update in updates.updates if update.param in on_servers),
        local=tuple(update for update in updates.updates if update.param not in on_servers),
        clipping=divide_clipping(updates.clipping, program.global_block().ops, on_servers),
    )


def _update(
    param: str,
    ops: list[Operator],
    optimize: list[int],
    owners: dict[int, str],
    raw: dict[str, str],
    clipping: Clipping,
) -> ParameterUpdate:
    own = [index for index in optimize if owners[index] == param]
    gradients = [ops[index].inputs["Grad"][0] for index in own if "Grad" in ops[index].inputs]
    gradient = raw.get(param) or (gradients[0] if gradients else param + GRAD)
    gradient = clipping.clipped_on_trainer.get(param, gradient)
    own = sorted([*own, *clipping.per_slice.get(param, ())])
    return ParameterUpdate(param, gradient, tuple(own))


def _raw_gradients(ops: list[Operator]) -> dict[str, str]:
    """The gradient that backward completes for each parameter."""
    gradients: dict[str, str] = {}
    for op in ops:
        if op.role & OpRole.BACKWARD:
            named = role_names(op)
            gradients |= dict(zip(named[::2], named[1::2], strict=True))
    return gradients


def _owners(program: Program, optimize: list[int]) -> dict[int, str]:
    """The parameter that each op of the optimizer belongs to.

    It is the one that the op names in `op_role_var`, or reads as `Param`, or else the one whose
    ops share a variable with it that no other parameter's ops use.
    """
    ops = program.global_block().ops
    for index in optimize:
        _expect_plain(ops[index])
    owners = {index: _named_param(ops[index]) for index in optimize}
    owner_of = {index: owner for index, owner in owners.items() if owner}
    while len(owner_of) < len(optimize):
        users = _users(ops, owner_of)
        fresh = {
            index: owner
            for index in optimize
            if index not in owner_of and (owner := _sharing(ops[index], users))
        }
        if not fresh:
            stray = next(ops[index] for index in optimize if index not in owner_of)
            raise ValueError(
                f"{stray.type} ({stray.source}) belongs to the update of no single parameter, so "
                "no server can run it; leave it out of the program that is transpiled"
            )
        owner_of |= fresh
    return owner_of


def _expect_plain(op: Operator) -> None:
    """ValueError for an op of an optimizer that is unknown or owns a block."""
    if not is_registered(op.type):
        raise ValueError(f"Not supported optimizer for distributed training: {op.type}")
    if any(isinstance(value, BlockRef) for value in op.attrs.values()):
        raise ValueError(
            f"Not supported optimizer for distributed training: {op.type} ({op.source}) updates "
            "through a block of its own"
        )


def _named_param(op: Operator) -> str:
    """The parameter that an op names itself; "" where it names none."""
    named = role_names(op)
    read = op.inputs.get("Param") or []
    return named[0] if named else read[0] if read else ""


def _users(ops: list[Operator], known: dict[int, str]) -> dict[str, set[str]]:
    """The parameters whose ops use a variable, by the variable."""
    users: dict[str, set[str]] = {}
    for index, owner in known.items():
        for name in [*ops[index].reads(), *ops[index].writes()]:
            users.setdefault(name, set()).add(owner)
    return users


def _sharing(op: Operator, users: dict[str, set[str]]) -> str:
    """The only parameter whose ops share an otherwise unused variable with `op`; "" for none."""
    names = [*op.writes(), *op.reads()]
    owners = {next(iter(users[n])) for n in names if len(users.get(n, ())) == 1}
    return owners.pop() if len(owners) == 1 else ""


def needs_whole(program: Program, update: ParameterUpdate) -> bool:
    """Whether an update needs the norm of the whole parameter, or of its whole gradient."""
    ops = program.global_block().ops
    return any(ops[index].type in WHOLE_ONLY for index in update.ops)


def private_names(program: Program, updates: Updates, update: ParameterUpdate) -> list[str]:
    """The variables that only the update of one parameter uses: optimizer state and temporaries.

    They are the ones that its ops write, and those of the parameter's shape, which are sliced like
    it.
    """
    block = program.global_block()
    ops = [block.ops[index] for index in update.ops]
    elsewhere = {update.param, update.gradient, *_used_elsewhere(program, updates, update)}
    written = {name for op in ops for name in op.writes()}
    shape = block.var(update.param).shape
    used = dict.fromkeys(name for op in ops for name in [*op.reads(), *op.writes()])
    return [
        name
        for name in used
        if name not in elsewhere
        and (name in written or (name in block.vars and block.vars[name].shape == shape != (1,)))
    ]


def _used_elsewhere(program: Program, updates: Updates, update: ParameterUpdate) -> set[str]:
    """The variables that the schedule or the updates of other parameters use."""
    ops = program.global_block().ops
    others = [*updates.schedule, *updates.clipping.on_servers, *updates.clipping.on_trainer]
    rest = [*updates.updates, *updates.local]
    others += [index for other in rest if other is not update for index in other.ops]
    users = [ops[index] for index in others if index not in update.ops]
    scaled = set[str]() if updates.clipping.merged is None else {updates.clipping.merged.scale}
    return {name for op in users for name in [*op.reads(), *op.writes()]} | scaled


def parameter(program: Program, name: str) -> Variable:
    """A parameter of the main block; ValueError where its shape is not known."""
    var = program.global_block().var(name)
    if not var.shape or min(var.shape) < 1:
        raise ValueError(f"the shape of parameter {name!r} must be known, but is {var.shape}")
    return var
