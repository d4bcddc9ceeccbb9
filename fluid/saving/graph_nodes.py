"""Saving and loading of the persistable variables of an `IrGraph`."""

from __future__ import annotations

import warnings
from pathlib import Path

from fluid.compiler import ProgramGraph
from fluid.executor import Executor
from fluid.framework import Variable
from fluid.saving.persistables import load_vars, save_vars
from fluid.saving.variables import is_persistable

__all__ = ["load_persistable_nodes", "save_persistable_nodes"]


def save_persistable_nodes(executor: Executor, dirname: str, graph: ProgramGraph) -> None:
    """Save each persistable variable of a graph to a file of a folder."""
    save_vars(executor, dirname, vars=_persistable(graph))


def load_persistable_nodes(executor: Executor, dirname: str, graph: ProgramGraph) -> None:
    """Load the persistable variables of a graph; those without a file are reported and stay."""
    variables = _persistable(graph)
    missing = [var.name for var in variables if not Path(dirname, var.name).exists()]
    for name in missing:
        warnings.warn(f"Cannot find the var {name} in {dirname}", stacklevel=2)
    load_vars(executor, dirname, vars=[var for var in variables if var.name not in missing])


def _persistable(graph: ProgramGraph) -> list[Variable]:
    return [var for var in graph.to_program().list_vars() if is_persistable(var)]
