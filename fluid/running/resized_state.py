"""Persistable variables whose type changes from run to run, such as accumulated rows.

Compiled state has static types. A persistable variable of dynamic size is therefore fed from the
scope, with the size that it has there; if the program writes it, it is fetched and stored back
after the run, with its LoD. So is a tensor array, and a variable to which an op of the main block
gives another dtype or shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from compiler.ir.program import VarKind
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.per_version import PerVersion
from fluid.framework import Program, Variable
from fluid.running.feed_checks import missing_feeds
from fluid.running.fetched_values import Value
from fluid.running.file_ops import value_of, with_lod
from fluid.running.route import Run
from fluid.running.state_types import retyped_state
from runtime.device import CPUPlace
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = ["ResizedState"]


@dataclass(frozen=True)
class Resized:
    """A program without such variables as state: `fed` are fed from the scope, `stored` are
    stored in it after the run.
    """

    program: Program
    fed: tuple[str, ...]
    stored: tuple[str, ...]

    def run(
        self, run: Run, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope
    ) -> list[Value]:
        """Run the program; return the fetched values, arrays or LoDTensors.

        Raises NotInitialized if the scope has no value for a variable, and what a run raises.
        """
        feeds = with_lod(feed)
        values = {n: value_of(n, {}, scope) for n in self.fed if n not in feeds} | feeds
        left = [name for name in self.stored if name not in fetch]
        results = run(self.program, values, [*fetch, *left], return_numpy=False)
        values |= dict(zip([*fetch, *left], results, strict=True))
        for name in (*self.stored, *(n for n in self.fed if n in feeds and n not in self.stored)):
            _set(scope, name, values[name])
        return list(map(_plain, results[: len(fetch)]))


class ResizedState:
    """Runs programs that resize their state; `run` is that of the Executor."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._resized = PerVersion(_resized)

    def applies(self, program: Program) -> bool:
        """Whether a program reads state of dynamic size, or changes the type of state."""
        return self._resized[program] is not None

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> list[Value]:  # fmt: skip
        """Run a program; returns and raises as `Resized.run`."""
        resized = self._resized[program]
        assert resized is not None
        return resized.run(partial(self._run, scope=scope), feed, fetch, scope)


def _resized(program: Program) -> Resized | None:
    """Return the program without state whose type changes, if it reads any."""
    main = program.global_block()
    dynamic = {name for name, var in main.vars.items() if _is_dynamic(var)}
    written = {name for op in main.ops for name in op.writes()}
    retyped = {name for name in retyped_state(program) if name in written}
    if not dynamic and not retyped:
        return None
    copied = program.copied()
    variables = copied.global_block().vars
    for name in dynamic | retyped:
        variables[name].persistable = False
    first = missing_feeds(copied, set())
    for name in dynamic | retyped:
        var = variables[name]
        var.persistable = name not in first and name not in written
        var.is_data = name in first
    copied.touch()
    fed = tuple(name for name in main.vars if name in first and name in dynamic | retyped)
    stored = tuple(
        name
        for name, var in main.vars.items()
        if name in written and name in dynamic | retyped and var.kind is not VarKind.RANK_TABLE
    )
    return Resized(copied, fed, stored) if fed or stored else None


def _is_dynamic(var: Variable) -> bool:
    """Return whether a variable is state with a dynamic shape, or not one tensor."""
    if not var.persistable or var.dims is None:
        return False
    return var.kind in (VarKind.TENSOR_ARRAY, VarKind.RANK_TABLE) or -1 in var.shape


def _plain(value: Value) -> Value:
    """Return a fetched tensor without LoD as an array, others unchanged."""
    return np.asarray(value) if isinstance(value, LoDTensor) and not value.lod() else value


def _set(scope: Scope, name: str, value: LoDTensor | list[LoDTensor | None]) -> None:
    """Set a value, a tensor or the items of an array, in the scope."""
    if isinstance(value, list):
        items = scope.var(name).get_lod_tensor_array()
        items.clear()
        for item in value:
            items.append(LoDTensor() if item is None else item)
        return
    tensor = scope.var(name).get_tensor()
    tensor.set(np.array(value), CPUPlace())
    tensor.set_lod(value.lod())
