"""Variables that lie on servers, saved whole by a trainer and loaded in parts by a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid.distributed.job import ParameterServerJob
from fluid.distributed.placement import VarDistributed
from fluid.distributed.sharding import ShardingPlan, Table
from fluid.framework import Program
from fluid.parameter_server.programs import serves, trained_program
from fluid.parameter_server.sessions import open_session, session_for
from runtime.ps.training.trainer import Trainer

__all__ = ["Part", "local_names", "merged_values", "parts_of"]

TRAINED = ("Param", "Optimizer", "RemotePrefetch")
SHARE = ".trainer_"
"""What names of what a single trainer sends have, such as its share of a schedule's counter."""


@dataclass(frozen=True)
class Part:
    """A variable of a server: `cut` makes its value from that of the whole variable `origin`."""

    origin: str
    cut: Callable[[Array], Array]


# ---- trainers


def merged_values(program: Program) -> dict[str, Array]:
    """The variables of a trainer's program that are on servers, each joined from its shards.

    For a program without communication, and an inference program derived from a trainer's, only
    the variables it has. Empty for any other program. Raises WireError if a server does not answer.
    """
    trained, job = trained_program(program)
    if serves(program) or job is None:
        return {}
    session = session_for(trained)
    if session is not None and trained is program:
        return _merged(job, session)
    session = session or open_session(job.plan.endpoints)
    names = {var.name for var in program.list_vars()}
    values = {} if session is None else _merged(job, session)
    return {name: value for name, value in values.items() if name in names}


def _merged(job: ParameterServerJob, session: Trainer) -> dict[str, Array]:
    values: dict[str, Array] = {}
    groups = job.placement.get_distributed_vars_by_vtypes(TRAINED, True)
    for name, slices in groups.items():
        ordered = sorted(slices, key=lambda each: each.block_id)
        parts = [session.read(part.endpoint, [part.slice.name])[0] for part in ordered]
        whole = len(parts) > 1 and ordered[0].is_slice
        values[name] = np.concatenate(parts) if whole else parts[0]
    table = job.plan.table
    if table is not None:
        values[table.name] = _merged_table(table, session)
    return values | _counters(job, session)


def _merged_table(table: Table, session: Trainer) -> Array:
    """A table with `is_distributed`: server i of n has its rows i, i + n, i + 2 n and so on."""
    servers = len(table.endpoints)
    parts = [session.read(endpoint, [table.name])[0] for endpoint in table.endpoints]
    whole = np.empty(table.shape, parts[0].dtype)
    for number, part in enumerate(parts):
        rows = whole[number::servers]
        rows[...] = part[: len(rows)]
    return whole


def _counters(job: ParameterServerJob, session: Trainer) -> dict[str, Array]:
    """The counters of the learning-rate schedule, which every server has."""
    counters: dict[str, Array] = {}
    for counter in job.counters:
        names = _shares(job.plan, counter) or [counter]
        counters[counter] = np.sum(session.read(job.plan.endpoints[0], names), axis=0)
    return counters


def _shares(plan: ShardingPlan, counter: str) -> list[str]:
    """The shares of trainers in a counter, where they do not make steps together."""
    trainers = range(plan.trainers if counter in plan.counters else 0)
    return [plan.counter_name(counter, trainer) for trainer in trainers]


def local_names(program: Program, names: Iterator[str]) -> list[str]:
    """Those of the variables of a program that this process itself has values of."""
    job = trained_program(program)[1]
    if job is None or serves(program):
        return list(names)
    lookups = job.placement.get_distributed_vars_by_vtypes(["RemotePrefetch"])
    remote = {v.origin.name for v in lookups}
    table = job.plan.table
    remote |= set() if table is None else {table.name}
    return [name for name in names if name not in remote and SHARE not in name]


# ---- servers


def parts_of(program: Program) -> dict[str, Part]:
    """For each variable of a server's program that is part of another or renamed, how it is made.

    Empty for any other program.
    """
    job = program.job
    if not isinstance(job, ParameterServerJob) or not serves(program):
        return {}
    endpoint, plan = job.endpoint, job.plan
    blocks = job.placement.get_distributed_vars_by_ep(endpoint)
    parts = {v.slice.name: Part(v.origin.name, partial(slice_rows, source=v)) for v in blocks}
    if plan.table is not None:
        cut = partial(_table_rows, table=plan.table, endpoint=endpoint)
        parts[plan.table.name] = Part(plan.table.name, cut)
    for counter in job.counters:
        first, *others = _shares(plan, counter) or [counter]
        parts[first] = Part(counter, np.array)
        parts |= {name: Part(counter, np.zeros_like) for name in others}
    return parts


def _table_rows(array: Array, table: Table, endpoint: str) -> Array:
    """The rows of a table that lie on a server, and zeros below where it has room for more."""
    _expect_shape(table.name, array, table.shape)
    rows = array[table.endpoints.index(endpoint) :: len(table.endpoints)]
    missing = table.rows_here - len(rows)
    return np.concatenate([rows, np.zeros((missing, *array.shape[1:]), array.dtype)])


def slice_rows(array: Array, source: VarDistributed) -> Array:
    """The rows of a whole variable that a server holds. ValueError where the whole has others."""
    _expect_shape(source.origin.name, array, source.origin.shape)
    if not source.is_slice:
        return array
    width = max(1, int(np.prod(source.origin.shape[1:])))
    start = source.offset // width
    return np.ascontiguousarray(array[start : start + source.slice.shape[0]])


def _expect_shape(name: str, array: Array, shape: Sequence[int]) -> None:
    if tuple(array.shape) != tuple(shape):
        raise ValueError(
            f"{name!r} was saved as {list(array.shape)}, the program has {list(shape)}: was it "
            "saved by a job with another program?"
        )
