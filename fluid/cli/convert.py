"""`fluid convert`: a saved model in another file layout, with the same program and parameters.

The program is parsed only as far as the protobuf format, so fields of other releases that are
unknown here are kept. Everything is read and checked before anything is written, and the old files
remain if writing fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from compiler.errors import CompileError
from compiler.ir.model_format.program_desc import CALL_STACK, is_newer_release, program_version
from compiler.ir.model_format.protobuf import Message, dump, parse
from compiler.report.memory import size_text
from compiler.report.table import count
from compiler.support.dataclass import dataclass
from fluid import io
from fluid.cli.layout import (
    COMBINED_FILE,
    LATER_MODEL,
    LATER_PARAMS,
    ModelFiles,
    locate,
    saved_names,
)
from fluid.cli.model import CommandError
from fluid.cli.subcommands import Subcommands
from fluid.executor import Executor, scope_guard
from fluid.saving.files import bytes_writer
from fluid.saving.inference_model import MODEL_FILE
from fluid.saving.persistables import value_of
from runtime.errors import CheckpointError
from runtime.files.atomic_saves import Writer, reading, save_files, visible_names
from runtime.files.checkpoint import Tensor, combined_writer, tensor_path, tensor_writer
from runtime.tensors.scope import Scope

CONVERT = """\
Write a saved model in another file layout: one file per parameter or all in one, as __model__ or
as .pdmodel and .pdiparams. The layout of the source is detected. Ops and values do not change, so a
program of a later release still has the ops of that release. Only the call stacks of ops are
removed, since they contain the paths of the machine that saved the model.
"""
CONVERT_EXAMPLES = f"""\
examples:
  fluid convert inference.pdmodel out            out/{MODEL_FILE} and a file for each parameter
  fluid convert DIR out --combined               out/{MODEL_FILE} and out/{COMBINED_FILE}
  fluid convert DIR out/inference.pdmodel        and out/inference.pdiparams
  fluid convert DIR out --to-model model --to-params params
  fluid convert DIR DIR --combined --force       in place
"""


def add_convert(commands: Subcommands) -> None:
    """Add `convert` to the subcommands."""
    command = commands.add_parser(
        "convert",
        help="write a saved model in another file layout, such as .pdmodel",
        description=CONVERT,
        epilog=CONVERT_EXAMPLES,
    )
    command.set_defaults(command=convert)
    _add_paths(command)
    for option, what in (
        ("--model-filename", "name of the program file in SRC, if unusual"),
        ("--params-filename", "name of the combined parameter file in SRC, if unusual"),
        ("--to-model", f"name of the program file in DST (default: {MODEL_FILE})"),
        ("--to-params", f"name of the combined parameter file in DST (default: {COMBINED_FILE})"),
    ):
        command.add_argument(option, metavar="FILE", help=what)


def _add_paths(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "source", type=Path, metavar="SRC", help="the folder of a saved model, or its .pdmodel"
    )
    command.add_argument(
        "target",
        type=Path,
        metavar="DST",
        help="a folder, or NAME.pdmodel to write NAME.pdiparams too",
    )
    command.add_argument("--combined", action="store_true", help="all parameters in one file")
    command.add_argument(
        "--force", action="store_true",
        help="replace an existing model; other files in the folder remain",
    )  # fmt: skip


def convert(given: argparse.Namespace) -> int:
    """Read the source model, write the target and print a report."""
    target = target_of(given)
    _expect_free(given.target, target, given.force)
    source = locate(given.source, given.model_filename, given.params_filename)
    model = read_model(source)
    model.write(target)
    print(_report(source, target, model))
    return 0


# ---- where to ----


def target_of(given: argparse.Namespace) -> ModelFiles:
    """The target files that the arguments name; raises CommandError where the
    arguments conflict.
    """
    for name in (given.to_model, given.to_params):
        if name is not None and Path(name).name != name:
            raise CommandError(f"{name!r} is not a file name: the folder is DST")
    if given.target.suffix == LATER_MODEL:
        if given.to_model:
            raise CommandError(
                f"DST {given.target.name} conflicts with --to-model {given.to_model}"
            )
        params = given.to_params or given.target.stem + LATER_PARAMS
        return ModelFiles(given.target.parent, given.target.name, params)
    combined = given.to_params or (COMBINED_FILE if given.combined else None)
    layout = ModelFiles(given.target, given.to_model or MODEL_FILE, combined)
    if layout.model == layout.params:
        raise CommandError(f"program and parameters cannot both be {layout.model!r}")
    return layout


def _expect_free(asked: Path, target: ModelFiles, force: bool) -> None:
    if target.folder.exists() and not target.folder.is_dir():
        raise CommandError(f"{target.folder} is a file, not a folder: choose another DST")
    if force:
        return
    if asked == target.folder:
        there = target.folder.is_dir() and visible_names(target.folder)
        taken = [asked] if there else []
    else:
        taken = [path for path in target.files([]) if path.exists()]
    if taken:
        raise CommandError(
            f"{taken[0]} already exists: choose another DST, or pass --force to replace it"
        )


# ---- the model ----


@dataclass(frozen=True)
class ConvertedModel:
    """A model as read: serialised program without call stacks, and parameters by name.

    `before` is the size of the program in bytes as it was read, `version` the release that wrote
    it.
    """

    version: int
    before: int
    program: bytes
    params: Mapping[str, Tensor]

    def write(self, target: ModelFiles) -> None:
        """Write every target file, and remove the other files of the model that was there.

        The write is atomic, even if the process is killed. Raises CommandError where a
        parameter cannot have its own file, and the errors of `save_files`.
        """
        removed = [path.relative_to(target.folder).as_posix() for path in _model_files(target)]
        save_files(target.folder, self._files(target), removed)

    def _files(self, target: ModelFiles) -> dict[str, Writer]:
        program = {target.model: bytes_writer(self.program)}
        if target.params is not None:
            return {target.params: combined_writer(self.params), **program}
        for name in self.params:
            _expect_file_of_its_own(name, target, self.params)
        return {
            name: tensor_writer(name, *tensor) for name, tensor in self.params.items()
        } | program


def _expect_file_of_its_own(name: str, target: ModelFiles, names: Iterable[str]) -> None:
    if tensor_path(target.folder, name) == target.program:
        raise CommandError(
            f"a parameter is called {name!r}, like the program file: pass --to-model"
        )
    if any(name.startswith(f"{other}/") for other in names):
        raise CommandError(f"parameter {name!r} cannot have its own file: pass --combined")


def read_model(source: ModelFiles) -> ConvertedModel:
    """Read the program and parameters of a model and check that they match.

    Raises CommandError where they do not match, and the errors of reading corrupt files.
    """
    with reading(source.folder):
        names = saved_names(source.program)
        data = source.program.read_bytes()
        params = _read_params(source, names)
    message = parse(data)
    return ConvertedModel(
        program_version(message), len(data), dump(without_call_stacks(message)), params
    )


def _read_params(source: ModelFiles, names: Sequence[str]) -> dict[str, Tensor]:
    files = str(source.folder), Executor(), source.model, source.params
    with scope_guard(Scope()):
        try:
            io.load_inference_model(*files)
        except FileNotFoundError as error:
            hint = "if all parameters are in one file, name it with --params-filename"
            raise CommandError(f"{error}\n  hint: {hint}") from error
        except RuntimeError as error:
            raise CommandError(str(error)) from error
        return {name: value_of(name) for name in names}


def without_call_stacks(message: Message) -> Message:
    """Remove the call-stack attribute of every op from a program message."""
    blocks = message.many("blocks", Message)
    return _with(message, "blocks", [_with(b, "ops", map(_without, _ops(b))) for b in blocks])


def _ops(block: Message) -> tuple[Message, ...]:
    return block.many("ops", Message)


def _without(op: Message) -> Message:
    attrs = op.many("attrs", Message)
    return _with(op, "attrs", [attr for attr in attrs if attr.one("name", str) != CALL_STACK])


def _with(message: Message, field: str, items: Iterable[Message]) -> Message:
    remaining = {name: value for name, value in message.values.items() if name != field}
    values = tuple(items)
    return replace(message, values={**remaining, field: values} if values else remaining)


# ---- writing all or nothing ----


def _model_files(target: ModelFiles) -> list[Path]:
    """The files of the model whose program would be overwritten."""
    try:
        there = locate(target.folder, target.model)
        return [path for path in there.files(saved_names(there.program)) if path.is_file()]
    except (CommandError, CompileError, CheckpointError):
        return []


# ---- report ----


def _report(source: ModelFiles, target: ModelFiles, model: ConvertedModel) -> str:
    nbytes = sum(array.nbytes for array, _ in model.params.values())
    params = f"{count(len(model.params), 'parameter')} with {size_text(nbytes)}"
    sizes = f"{size_text(len(model.program))} without call stacks, {size_text(model.before)} before"
    lines = [f"read     {source}: {params}", f"written  {target}", f"         program: {sizes}"]
    if is_newer_release(model.version) and model.version:
        lines.append(f"         its ops are those of release {_release(model.version)}")
    return "\n".join(lines)


def _release(version: int) -> str:
    """Format a version number as a string.

    >>> _release(2_003_002)
    '2.3.2'
    """
    return ".".join(str(version // 1000**place % 1000) for place in (2, 1, 0))
