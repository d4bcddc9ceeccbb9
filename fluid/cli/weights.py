"""`fluid weights`: list the parameters of a saved model, and export them to NumPy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from compiler.errors import did_you_mean
from compiler.ir.types import Array
from compiler.report.memory import size_text
from compiler.report.table import count, table
from fluid.cli.layout import locate
from fluid.cli.model import CommandError, add_file_names, load_model
from fluid.cli.subcommands import Subcommands
from fluid.cli.values.arrays import expect_output, write_arrays
from runtime.errors import CheckpointError
from runtime.files.atomic_saves import reading, saved_files
from runtime.files.checkpoint import load_tensor
from runtime.files.save_record import TornSaveError

WEIGHTS = """\
List the parameters of a saved model: names, dtypes, shapes and sizes. With --npz, write them to a
file for NumPy, each under its name. Accepts models of Paddle 1.x, the .pdmodel and .pdiparams of
later releases, and a folder written by fluid.io.save_params, in which each file is a parameter.
"""
WEIGHTS_EXAMPLES = """\
examples:
  fluid weights out/demo/model
  fluid weights out/demo/model --npz weights.npz      then numpy.load("weights.npz")["conv2d_0.w_0"]
  fluid weights inference.pdmodel --only 'conv2d_*.w_0' --only 'fc_*'
  fluid weights DIR --model-filename model --params-filename params
"""


def add_weights(commands: Subcommands) -> None:
    """Add `weights` to the subcommands."""
    command = commands.add_parser(
        "weights",
        help="list the parameters of a saved model, or export them to .npz",
        description=WEIGHTS,
        epilog=WEIGHTS_EXAMPLES,
    )
    command.set_defaults(command=weights)
    command.add_argument(
        "model_dir", type=Path, metavar="MODEL",
        help="the folder of a saved model or of parameters, or its .pdmodel",
    )  # fmt: skip
    command.add_argument("--npz", type=Path, metavar="FILE", help="write the parameters to a .npz")
    command.add_argument(
        "--only", action="append", default=[], metavar="PATTERN",
        help="only parameters whose name matches, with * as wildcard; repeatable",
    )  # fmt: skip
    add_file_names(command.add_argument)


def weights(given: argparse.Namespace) -> int:
    """Print the selected parameters, and write them if requested."""
    selected = chosen(_parameters(given), given.only)
    if given.npz:
        expect_output(given.npz, len(selected))
    print(shown(given.model_dir, selected))
    if given.npz:
        write_arrays(given.npz, selected)
        print(f"\nwritten to {given.npz}: {count(len(selected), 'array')}")
    return 0


def _parameters(given: argparse.Namespace) -> dict[str, Array]:
    """The parameters of a model, or of a folder that contains only parameter files."""
    folder: Path = given.model_dir
    named = given.model_filename or given.params_filename
    if folder.is_dir() and not named and (alone := _tensors_in(folder)):
        return alone
    files = locate(folder, given.model_filename, given.params_filename)
    return load_model(files.folder, files.model, files.params).params


def _tensors_in(folder: Path) -> dict[str, Array]:
    """The tensors of a folder in which every file is a tensor, by file name; otherwise empty."""
    try:
        with reading(folder):
            files = saved_files(folder)
            return {path.relative_to(folder).as_posix(): load_tensor(path)[0] for path in files}
    except TornSaveError:
        raise
    except CheckpointError:
        return {}


def chosen(params: Mapping[str, Array], patterns: Sequence[str]) -> dict[str, Array]:
    """The parameters whose name matches a pattern (all without patterns), sorted by name.

    Raises CommandError for a pattern without a match.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in params):
            hint = did_you_mean(pattern, params) or f"there are {', '.join(list(params)[:8])}"
            raise CommandError(f"no parameter matches {pattern!r}; {hint}")
    selected = [n for n in params if not patterns or any(fnmatchcase(n, p) for p in patterns)]
    return {name: params[name] for name in sorted(selected, key=_counted)}


def _counted(name: str) -> list[tuple[int, str]]:
    """Sort key that puts `fc_2` before `fc_10`."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def shown(where: Path, params: Mapping[str, Array]) -> str:
    """Format the parameters as a table with totals."""
    numbers = sum(array.size for array in params.values())
    nbytes = sum(array.nbytes for array in params.values())
    rows = [("parameter", "type", "shape", "numbers", "bytes")]
    for name, array in params.items():
        shape = str(list(array.shape))
        rows.append((name, str(array.dtype), shape, f"{array.size:,}", size_text(array.nbytes)))
    total = f"{count(len(params), 'parameter')} with {count(numbers, 'number')}"
    return f"{where}: {total}, {size_text(nbytes)}\n\n{table(rows, left=3)}"
