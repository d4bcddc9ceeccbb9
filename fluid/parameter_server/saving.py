"""Variables that lie on servers, saved whole by a trainer and loaded in slices by a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array
from fluid.framework import Program
from fluid.parameter_server.serving import serves
from fluid.parameter_server.sessions import session_for
from runtime.ps.trainer import Trainer

__all__ = ["merged_values", "slice_rows", "sources_of"]

TRAINED = ("Param", "Optimizer", "RemotePrefetch")


def merged_values(program: Program) -> dict[str, Array]:
    """The variables of a trainer's program that are on servers, each joined from its slices.

    Of an inference program that was made from one, as `_trained_by` says, only those it has. Empty
    for any other program. Raises WireError where a server does not answer.
    """
    trained: Program = getattr(program, "_trained_by", program)
    placement = getattr(trained, "_parameters_on_pservers", None)
    session = None if placement is None or serves(program) else session_for(trained)
    if session is None:
        return {}
    groups: Mapping[str, Any] = placement.get_distributed_vars_by_vtypes(TRAINED, True)
    known = groups.keys() if trained is program else program.global_block().vars.keys()
    return {n: _joined(session, slices) for n, slices in groups.items() if n in known}


def _joined(session: Trainer, slices: Sequence[Any]) -> Array:
    """A variable, read from the servers of its slices."""
    ordered = sorted(slices, key=lambda each: each.block_id)
    parts = [session.read(each.endpoint, [each.slice.name])[0] for each in ordered]
    whole = len(parts) > 1 and ordered[0].is_slice
    return np.concatenate(parts) if whole else parts[0]


def sources_of(program: Program) -> dict[str, Any]:
    """For each variable of a server's program that is a slice or renamed, what it is of."""
    placement = getattr(program, "_parameters_on_pservers", None)
    if placement is None or not serves(program):
        return {}
    held = placement.get_distributed_vars_by_ep(getattr(program, "_ps_endpoint", ""))
    return {each.slice.name: each for each in held}


def slice_rows(array: Array, source: Any) -> Array:
    """The rows of a whole variable that a server holds. ValueError where the whole has others."""
    if tuple(array.shape) != tuple(source.origin.shape):
        raise ValueError(
            f"{source.origin.name!r} was saved as {list(array.shape)}, the program has "
            f"{list(source.origin.shape)}: was it saved by a job with another program?"
        )
    if not source.is_slice:
        return array
    width = max(1, int(np.prod(source.origin.shape[1:])))
    start = source.offset // width
    return np.ascontiguousarray(array[start : start + source.slice.shape[0]])
