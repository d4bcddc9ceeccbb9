"""The inputs of `fluid bisect` and `fluid compare`: arrays from files, or generated ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.codegen.module import Module
from compiler.debugging.id_limits import id_limits
from compiler.debugging.values import inputs
from compiler.errors import did_you_mean
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fluid.cli.model import CommandError
from fluid.cli.subject import Subject
from fluid.cli.values.arrays import read_arrays
from fluid.cli.values.declared_dtypes import as_declared
from runtime import load

SEQUENCES = "@LOD"


@dataclass(frozen=True)
class TrialArrays:
    """An array for each feed and each persistable variable of a program, by name."""

    feed: dict[str, Array]
    params: dict[str, Array]


def read_input_arrays(texts: Sequence[str], found: Subject | None) -> dict[str, Array]:
    """Read the arrays of `--input [NAME=]FILE`: a `.npz`, or a `.npy` with a name, which may be
    left out if a program has one feed.

    Raises CommandError for another `.npy` without a name and for a name passed twice; OSError.
    """
    feeds = (
        [] if found is None else [v.name for v in found.graph.feeds() if SEQUENCES not in v.name]
    )
    arrays: dict[str, Array] = {}
    for text in texts:
        for name, array in _read(text, feeds).items():
            if name in arrays:
                raise CommandError(f"--input {text}: {name!r} is passed twice")
            arrays[name] = array
    return arrays


def _read(text: str, feeds: Sequence[str]) -> dict[str, Array]:
    name, equals, file = text.partition("=")
    if not equals or Path(text).exists():
        name, file = "", text
    arrays = read_arrays(Path(file))
    if isinstance(arrays, dict):
        return arrays
    if not name and len(feeds) != 1:
        one = feeds[0] if feeds else "x"
        raise CommandError(f"--input {text}: a .npy requires a name, like {one}={text}")
    return {name or feeds[0]: arrays}


def arrays_for(found: Subject, given: Mapping[str, Array], sizes: Mapping[str, int]) -> TrialArrays:
    """The arrays passed by the user or held by a model; the others are generated.

    Raises CommandError for a name or a dynamic dim the program does not have, CompileError for an
    array that does not fit.
    """
    feeds = found.graph.feeds()
    state = [var for var in found.graph.params() if not var.version]
    types = {var.name: var.type.dtype.numpy for var in (*feeds, *state)}
    names = [*types]
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"it has {', '.join(names) or 'none'}"
            raise CommandError(f"{found.path} has no feed and no state {name!r}; {hint}")
    symbols = {size for var in (*feeds, *state) for size in var.type.names}
    for size in sizes:
        if size not in symbols:
            have = ", ".join(sorted(symbols)) or "none"
            raise CommandError(f"{found.path} has no open size {size!r}; it has: {have}")
    given = {
        name: as_declared(array, types[name], name, f"--input {name}")
        for name, array in given.items()
    }
    return TrialArrays(
        inputs(feeds, given, sizes, limits=id_limits(found.graph)),
        inputs(state, {**found.params, **given}, sizes),
    )


def execute(module: Module, feed: Mapping[str, Array], params: dict[str, Array]) -> Sequence[Array]:
    """Run a module once with arrays by name; arrays that are not feeds of it are ignored."""
    wanted = {tensor.name: feed[tensor.name] for tensor in module.feeds}
    return [array.copy() for array in load(module, params=params)(wanted)]
