"""Placement of gradient clipping: on the trainer before sending, or on the servers.

`set_gradient_clip` clips on the trainer, its own gradients, as release 1.8.5 does. A clip passed to
the optimizer is applied to the mean gradient over the trainers, so that a synchronous job equals
one process on the whole batch:

- by value: on each slice;
- by norm: on its server, which then holds the whole parameter;
- by global norm, synchronous: a block of each server sums the squares of its slices, one op adds
  these sums over the servers, and each slice is scaled (`listen_and_serv`'s `clip_block_id`);
- by global norm, asynchronous: no mean exists, and `send` scales the gradients it sends.

Any other clip, of a subclass of `GradientClipBase`, runs on the trainer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field, replace
from typing import TypeVar

from compiler.support.dataclass import dataclass
from fluid.framework import Operator

__all__ = ["Clipping", "GlobalNorm", "clip_ops", "divide_clipping", "read_clipping", "role_names"]

T = TypeVar("T")

SCOPE = "/gradient_clip"
SET_BEFOREHAND = "@CLIP"
"""The suffix of the name scope of `set_gradient_clip`."""
BY_SLICE = {"clip"}
BY_PARAMETER = {"clip", "clip_by_norm"}
SQUARES = {"square", "reduce_sum", "merge_selected_rows", "get_tensor_from_selected_rows"}
FACTOR = {"sum", "sqrt", "fill_constant", "elementwise_max", "elementwise_div"}


@dataclass(frozen=True)
class GlobalNorm:
    """A clip by global norm, as op indices in the main block.

    `squares` has the ops that compute the sum of squares of one parameter's gradient, `norms` their
    output variable; `total` adds these; `factor` are the following shared ops, the last of which
    computes `scale`; `scaled` has, for each parameter, the op that scales it.
    """

    squares: dict[str, tuple[int, ...]]
    norms: dict[str, str]
    total: int
    factor: tuple[int, ...]
    scale: str
    scaled: dict[str, int]
    limit: float


@dataclass(frozen=True)
class Clipping:
    """Placement of a program's gradient-clipping ops.

    `on_trainer` and `on_servers` are op indices in the main block; `clipped_on_trainer` has
    the variable sent for a parameter instead of its gradient, `per_slice` the ops that
    belong to a parameter's own block of a server.
    """

    on_trainer: tuple[int, ...] = ()
    on_servers: tuple[int, ...] = ()
    clipped_on_trainer: dict[str, str] = field(default_factory=dict[str, str])
    per_slice: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    merged: GlobalNorm | None = None
    """The clip by global norm that servers apply to merged gradients."""
    sent: GlobalNorm | None = None
    """The clip by global norm that `send` applies."""


def role_names(op: Operator) -> list[str]:
    """The names in the `op_role_var` of an op: a parameter, then its gradient."""
    names: Sequence[str] = op.attrs.get("op_role_var") or ()
    return [str(name) for name in names]


def clip_ops(ops: Sequence[Operator]) -> tuple[int, ...]:
    """The indices of the ops that clip gradients of parameters."""
    return tuple(
        index for index, op in enumerate(ops) if SCOPE in str(op.attrs.get("op_namescope", ""))
    )


def read_clipping(
    ops: Sequence[Operator], clips: Sequence[int], raw: dict[str, str], synchronous: bool
) -> Clipping:
    """Decide where the clipping ops run; `raw` has the gradient of each parameter."""
    if not clips:
        return Clipping()
    beforehand = any(SET_BEFOREHAND in str(ops[i].attrs["op_namescope"]) for i in clips)
    kinds = {ops[index].type for index in clips}
    if not beforehand and kinds <= BY_PARAMETER:
        return Clipping(on_servers=tuple(clips), per_slice=_by_param(ops, clips))
    norm = None if beforehand else _global_norm(ops, clips, raw)
    if norm is None:
        return Clipping(on_trainer=tuple(clips), clipped_on_trainer=_results(ops, clips))
    if not synchronous:
        return Clipping(on_servers=tuple(clips), sent=norm)
    scaled = {param: (index,) for param, index in norm.scaled.items()}
    return Clipping(on_servers=tuple(clips), per_slice=scaled, merged=norm)


def _by_param(ops: Sequence[Operator], clips: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The ops by the parameter in their `op_role_var`."""
    ops_by_param: dict[str, tuple[int, ...]] = {}
    for index in clips:
        param = role_names(ops[index])[0]
        ops_by_param[param] = (*ops_by_param.get(param, ()), index)
    return ops_by_param


def _results(ops: Sequence[Operator], clips: Sequence[int]) -> dict[str, str]:
    """The clipped gradient of each parameter, if a clip op computes it."""
    clipped = {name for index in clips for name in ops[index].writes()}
    named = [role_names(ops[index]) for index in clips]
    return {pair[0]: pair[1] for pair in named if pair and pair[1] in clipped}


def _global_norm(
    ops: Sequence[Operator], clips: Sequence[int], raw: dict[str, str]
) -> GlobalNorm | None:
    """A clip by global norm recognised from its ops; None if they are something else."""
    by_kind = {kind: [i for i in clips if ops[i].type == kind] for kind in FACTOR}
    scaled = {role_names(ops[i])[0]: i for i in clips if ops[i].type == "elementwise_mul"}
    kinds = {ops[index].type for index in clips} - SQUARES - FACTOR - {"elementwise_mul"}
    if kinds or not scaled or any(len(indices) != 1 for indices in by_kind.values()):
        return None
    total = by_kind["sum"][0]
    makers = {name: index for index in clips for name in ops[index].writes()}
    norms = dict(zip(scaled, ops[total].inputs["X"], strict=True))
    squares = {param: _chain(ops, makers, name) for param, name in norms.items()}
    factor = tuple(sorted(i for kind, indices in by_kind.items() if kind != "sum" for i in indices))
    scale = ops[by_kind["elementwise_div"][0]].writes()[0]
    limit = float(ops[by_kind["fill_constant"][0]].attrs["value"])
    return GlobalNorm(squares, norms, total, factor, scale, scaled, limit)


def _chain(ops: Sequence[Operator], makers: dict[str, int], name: str) -> tuple[int, ...]:
    """The clip ops that compute a variable, in order."""
    chain: set[int] = set()
    waiting = [name]
    while waiting:
        index = makers.get(waiting.pop())
        if index is not None and index not in chain:
            chain.add(index)
            waiting += ops[index].reads()
    return tuple(sorted(chain))


def divide_clipping(
    clipping: Clipping, ops: Sequence[Operator], on_servers: Collection[str]
) -> Clipping:
    """The clipping of the parameters on servers; trainers clip the others themselves.

    Raises ValueError for a clip by global norm over parameters of both kinds: no process has the
    merged gradients of both.
    """
    clips = [*clipping.on_trainer, *clipping.on_servers]
    here = {index for index in clips if _param_name(ops[index]) in on_servers}
    if not here:
        return Clipping()
    shared = _exchanged(ops, here, set(clips) - here)
    if shared:
        raise ValueError(
            "a clip by global norm cannot be over parameters on servers and parameters on "
            f"trainers, but {shared!r} is of both: clip by value or by norm, or only one kind"
        )
    return replace(
        clipping,
        on_trainer=tuple(index for index in clipping.on_trainer if index in here),
        on_servers=tuple(index for index in clipping.on_servers if index in here),
        clipped_on_trainer=_chosen(clipping.clipped_on_trainer, on_servers),
        per_slice=_chosen(clipping.per_slice, on_servers),
    )


def _exchanged(ops: Sequence[Operator], some: Collection[int], others: Collection[int]) -> str:
    """A variable that connects the two groups of ops; "" if there is none."""
    for writers, readers in ((some, others), (others, some)):
        written = {name for index in writers for name in ops[index].writes()}
        for index in readers:
            for name in ops[index].reads():
                if name in written:
                    return str(name)
    return ""


def _chosen(by_param: dict[str, T], params: Collection[str]) -> dict[str, T]:
    return {name: value for name, value in by_param.items() if name in params}


def _param_name(op: Operator) -> str:
    """The parameter whose gradient an op clips; "" if it names none."""
    return next(iter(role_names(op)), "")
