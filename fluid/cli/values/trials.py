"""The inputs of `fluid bisect` and `fluid compare`: arrays from files, or generated ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.codegen.module import Module
from compiler.debugging.values import inputs
from compiler.errors import did_you_mean
from compiler.ir.types import Array
from fluid.cli.model import CommandError
from fluid.cli.subject import Subject
from fluid.cli.values.arrays import read_arrays
from runtime import load

SEQUENCES = "@LOD"


@dataclass(frozen=True)
class TrialArrays:
    """An array for each feed and each persistable variable of a program, by name."""

    feed: dict[str, Array]
    params: dict[str, Array]


def read_input_arrays(texts: Sequence[str]) -> dict[str, Array]:
    """Read the arrays of `--input [NAME=]FILE`: a `.npz`, or a `.npy` with a name.

    Raises CommandError for a `.npy` without a name and for a name passed twice; OSError.
    """
    arrays: dict[str, Array] = {}
    for text in texts:
        for name, array in _read(text).items():
            if name in arrays:
                raise CommandError(f"--input {text}: {name!r} is passed twice")
            arrays[name] = array
    return arrays


def _read(text: str) -> dict[str, Array]:
    name, equals, file = text.partition("=")
    if not equals or Path(text).exists():
        name, file = "", text
    arrays = read_arrays(Path(file))
    if isinstance(arrays, dict):
        return arrays
    if not name:
        raise CommandError(f"--input {text}: a .npy requires a name, like x={text}")
    return {name: arrays}


def arrays_for(found: Subject, given: Mapping[str, Array], sizes: Mapping[str, int]) -> TrialArrays:
    """The arrays passed by the user or held by a model; the others are generated.

    Raises CommandError for a name or a dynamic dim the program does not have, CompileError for an
    array that does not fit.
    """
    feeds = found.graph.feeds()
    state = [var for var in found.graph.params() if not var.version]
    names = [var.name for var in (*feeds, *state)]
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"it has {', '.join(names) or 'none'}"
            raise CommandError(f"{found.path} has no feed and no state {name!r}; {hint}")
    symbols = {size for var in (*feeds, *state) for size in var.type.names}
    for size in sizes:
        if size not in symbols:
            have = ", ".join(sorted(symbols)) or "none"
            raise CommandError(f"{found.path} has no open size {size!r}; it has: {have}")
    return TrialArrays(
        inputs(feeds, given, sizes), inputs(state, {**found.params, **given}, sizes)
    )  # fmt: skip


def execute(module: Module, feed: Mapping[str, Array], params: dict[str, Array]) -> Sequence[Array]:
    """Run a module once with arrays by name; arrays that are not feeds of it are ignored."""
    wanted = {tensor.name: feed[tensor.name] for tensor in module.feeds}
    return [array.copy() for array in load(module, params=params)(wanted)]
