"""`fluid weights`: the parameters of a saved model by name, as NumPy's arrays where asked."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from compiler.errors import did_you_mean
from compiler.ir.types import Array
from compiler.report.memory import size_text
from compiler.report.table import count, table
from fluid.cli.layout import locate
from fluid.cli.model import CommandError, load_model
from fluid.cli.values.arrays import expect_output, write_arrays
from runtime.errors import CheckpointError
from runtime.files.atomic_saves import reading, saved_files
from runtime.files.checkpoint import load_tensor
from runtime.files.save_record import TornSaveError

WEIGHTS = """\
List the parameters of a saved model: names, element types, shapes and sizes. With --npz they are
written where NumPy reads them, each under its name. Models of Paddle 1.x and the .pdmodel and
.pdiparams of later releases are read as they are; so is a folder that fluid.io.save_params wrote,
where each file is a parameter.
"""
WEIGHTS_EXAMPLES = """\
examples:
  fluid weights out/demo/model
  fluid weights out/demo/model --npz weights.npz      then numpy.load("weights.npz")["conv2d_0.w_0"]
  fluid weights inference.pdmodel --only 'conv2d_*.w_0' --only '*bias*'
  fluid weights DIR --model-filename model --params-filename params
"""


def add_weights(commands: Any) -> None:
    """Add the command to those of `fluid`."""
    command = commands.add_parser(
        "weights",
        help="list the parameters of a saved model, or write them as .npz",
        description=WEIGHTS,
        epilog=WEIGHTS_EXAMPLES,
    )
    command.set_defaults(command=weights)
    command.add_argument(
        "model_dir", type=Path, metavar="MODEL",
        help="the folder of a saved model or of parameters, or its .pdmodel",
    )  # fmt: skip
    command.add_argument("--npz", type=Path, metavar="FILE", help="write them to a .npz")
    command.add_argument(
        "--only", action="append", default=[], metavar="PATTERN",
        help="only those whose whole name fits, * for anything; may be given again",
    )  # fmt: skip
    command.add_argument(
        "--model-filename", metavar="FILE", help="the program, if it has an unusual name"
    )
    command.add_argument(
        "--params-filename", metavar="FILE", help="the parameters, if their file has"
    )


def weights(given: argparse.Namespace) -> int:
    """Print the parameters asked for, and write them where asked."""
    found = chosen(_parameters(given), given.only)
    if given.npz:
        expect_output(given.npz, len(found))
    print(shown(given.model_dir, found))
    if given.npz:
        write_arrays(given.npz, found)
        print(f"\nwritten to {given.npz}: {count(len(found), 'array')}")
    return 0


def _parameters(given: argparse.Namespace) -> dict[str, Array]:
    """Those of a model, or of a folder that holds nothing but parameters."""
    folder: Path = given.model_dir
    named = given.model_filename or given.params_filename
    if folder.is_dir() and not named and (alone := _tensors_in(folder)):
        return alone
    found = locate(folder, given.model_filename, given.params_filename)
    return load_model(found.folder, found.model, found.params).params


def _tensors_in(folder: Path) -> dict[str, Array]:
    """The tensors of a folder in which every file is one, by their names; else nothing."""
    try:
        with reading(folder):
            files = saved_files(folder)
            return {path.relative_to(folder).as_posix(): load_tensor(path)[0] for path in files}
    except TornSaveError:
        raise
    except CheckpointError:
        return {}


def chosen(params: Mapping[str, Array], patterns: Sequence[str]) -> dict[str, Array]:
    """Those parameters whose name fits one of the patterns, all without any; in order of names.

    Raises CommandError for a pattern that fits none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in params):
            hint = did_you_mean(pattern, params) or f"there are {', '.join(list(params)[:8])}"
            raise CommandError(f"no parameter fits {pattern!r}; {hint}")
    kept = [n for n in params if not patterns or any(fnmatchcase(n, p) for p in patterns)]
    return {name: params[name] for name in sorted(kept, key=_counted)}


def _counted(name: str) -> list[tuple[int, str]]:
    """A key that puts `fc_2` before `fc_10`."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def shown(where: Path, params: Mapping[str, Array]) -> str:
    """The parameters as a table, with their sum."""
    numbers = sum(array.size for array in params.values())
    nbytes = sum(array.nbytes for array in params.values())
    rows = [("parameter", "type", "shape", "numbers", "bytes")]
    for name, array in params.items():
        shape = str(list(array.shape))
        rows.append((name, str(array.dtype), shape, f"{array.size:,}", size_text(array.nbytes)))
    total = f"{count(len(params), 'parameter')} with {count(numbers, 'number')}"
    return f"{where}: {total}, {size_text(nbytes)}\n\n{table(rows, left=3)}"
