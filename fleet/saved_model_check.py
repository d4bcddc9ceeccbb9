"""Checks of a saved model against what is fed to it: `FleetUtil.check_vars_and_dump`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from compiler.ir.types import Array
from fleet.program_files import load_program
from fluid.executor import Executor, scope_guard
from fluid.framework import Program, Variable
from fluid.io import is_persistable, load_inference_model
from fluid.lod_tensor import create_lod_tensor
from runtime.device import CPUPlace
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = ["FeedConfig", "FetchConfig", "check_saved_vars_try_dump"]

LOG = logging.getLogger(__name__)
UNPRUNED = ("lookup_table",)
"""Ops that a program for inference with embeddings of servers does not have."""


class FeedConfig(Protocol):
    """The variables to feed: names, sizes without the batch, dtypes, and files with numbers."""

    feeded_vars_names: Sequence[str]
    feeded_vars_dims: Sequence[int | Sequence[int]]
    feeded_vars_types: Sequence[object]
    feeded_vars_filelist: Sequence[str] | None


class FetchConfig(Protocol):
    """The variables to fetch; None for those of the program."""

    fetch_vars_names: Sequence[str] | None


def check_saved_vars_try_dump(
    dump_dir: str,
    dump_prog_fn: str,
    is_text_dump_program: bool,
    feed_config: FeedConfig,
    fetch_config: FetchConfig,
    batch_size: int = 1,
    save_filename: str | None = None,
) -> list[Array] | list[LoDTensor]:
    """Run a saved model once, log what it fetches and return it; LoDTensors if any has LoD.

    Random numbers are fed, or those of a file for each variable, whole batches alone. Raises
    RuntimeError where a shape of a parameter or of a feed is not the program's, and
    NotImplementedError for a program as text.
    """
    program = load_program(str(Path(dump_dir) / dump_prog_fn), is_text_dump_program)
    parameters = [var for var in program.list_vars() if is_persistable(var)]
    LOG.info("persistable vars in dump program: %s", [var.name for var in parameters])
    for op_type in sorted({op.type for op in program.global_block().ops} & {*UNPRUNED}):
        LOG.warning("find op type %r in program: check whether it is pruned correctly", op_type)
    scope, executor = Scope(), Executor(CPUPlace())
    with scope_guard(scope):
        pruned, names, targets = load_inference_model(
            dump_dir, executor, dump_prog_fn, save_filename
        )
        for var in parameters:
            _check_parameter(var, scope)
        wanted = fetch_config.fetch_vars_names
        if wanted is not None and list(wanted) != [var.name for var in targets]:
            LOG.warning("fetch vars of the config, %s, are not the program's", list(wanted))
            targets = [pruned.global_block().var(name) for name in wanted]
        if list(feed_config.feeded_vars_names) != list(names):
            LOG.warning("feed vars in program and config are diff: %s in the program", list(names))
        feed = _feeds(pruned, feed_config, batch_size)
        as_arrays = all(var.lod_level == 0 for var in targets)
        results = executor.run(pruned, feed, targets, return_numpy=as_arrays)
    for var, result in zip(targets, results, strict=True):
        LOG.info("fetch_targets name: %s", var.name)
        LOG.info("fetch_targets: %s", result)
    return results


def _check_parameter(var: Variable, scope: Scope) -> None:
    loaded = scope.find_var(var.name)
    if loaded is None:
        raise RuntimeError(f"can't not find var: {var.name}: it was not saved")
    shape = np.array(loaded.get_tensor()).shape
    if shape != tuple(var.shape):
        raise RuntimeError(
            "Shape not matching: the Program requires a parameter with a shape of "
            f"({tuple(var.shape)}), while the loaded parameter (namely [ {var.name} ]) has a "
            f"shape of ({shape})."
        )


def _feeds(program: Program, config: FeedConfig, batch_size: int) -> dict[str, Array | LoDTensor]:
    names, dims, dtypes = (
        config.feeded_vars_names, config.feeded_vars_dims, config.feeded_vars_types,
    )  # fmt: skip
    files = config.feeded_vars_filelist or [None] * len(names)
    if not len(names) == len(dims) == len(dtypes) == len(files):
        raise ValueError(
            f"{len(names)} feeded_vars_names need as many dims, types and files, not "
            f"{len(dims)}, {len(dtypes)} and {len(files)}"
        )
    feeds: dict[str, Array | LoDTensor] = {}
    for name, size, dtype, file in zip(names, dims, dtypes, files, strict=True):
        var = program.global_block().var(name)
        shape = (size,) if isinstance(size, int) else tuple(size)
        if shape != tuple(var.shape[1:]):
            raise RuntimeError(
                f"feed variable '{name}' shape not match. infer program shape: "
                f"{tuple(var.shape[1:])}. feed tensor shape: {shape}"
            )
        rows = _rows(file, (batch_size, *shape)).astype(np.dtype(str(dtype)))
        feeds[name] = _with_lod(rows, var)
    return feeds


def _rows(file: str | None, batch: tuple[int, ...]) -> Array:
    """Random numbers of a batch, or the numbers of a file's lines, each line whole batches."""
    if file is None:
        return np.random.random(batch)
    size = int(np.prod(batch))
    numbers: list[float] = []
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        fields = [float(word) for word in line.split()]
        numbers += fields[: len(fields) // size * size]
    if not numbers:
        raise ValueError(f"{file}: no line has the {size} numbers of a batch of shape {batch}")
    return np.array(numbers).reshape(-1, *batch[1:])


def _with_lod(rows: Array, var: Variable) -> Array | LoDTensor:
    """Rows as they are, or each as a sequence; RuntimeError for levels of sequences."""
    if var.lod_level > 1:
        raise RuntimeError(f"{var.name} has {var.lod_level} levels of sequences; at most 1 is fed")
    return create_lod_tensor(rows, [[1] * len(rows)], CPUPlace()) if var.lod_level else rows
