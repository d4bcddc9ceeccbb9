"""A saved model loaded into its own scope for a command, with clear errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from compiler.errors import CompileError
from compiler.ir.model_format.program_desc import load_program
from compiler.ir.types import Array
from compiler.options import Options
from compiler.support.dataclass import dataclass
from fluid.framework import Program, Variable
from fluid.inference.packages import load_compiled, model_of
from fluid.inference.predictor import Predictor
from fluid.saving.inference_model import MODEL_FILE, InferenceModel, read_inference_model
from runtime.device import CUDAPlace, Place
from runtime.files.atomic_saves import reading, visible_names
from runtime.packages import read_package
from runtime.tensors.lod_tensor import LoDTensor

LISTED = 8
"""Names of a folder's files that a message has."""
LARGEST_PROGRAM = 16 << 20
"""Most bytes of a file that is read to see whether it is a program; programs are smaller."""


class CommandError(Exception):
    """A command that cannot be carried out; the message is one sentence for the user."""


@dataclass(frozen=True)
class SavedModel:
    """A program for inference with its feeds, its fetches and its parameters by name."""

    path: Path
    program: Program
    feeds: tuple[Variable, ...]
    fetches: tuple[Variable, ...]
    params: dict[str, Array]

    @property
    def fetch_names(self) -> list[str]:
        """The names of the fetches, in order."""
        return [var.name for var in self.fetches]

    def predictor(
        self, dtype: str | None = None, limit: int | None = None, place: Place | None = None
    ) -> Predictor:
        """A predictor over the parameters; products compute in `dtype` if that is set, and a run
        takes at most `limit` bytes. It runs on `place`, by default the CPU.
        """
        params = {name: LoDTensor(array) for name, array in self.params.items()}
        model = InferenceModel(self.program, self.feeds, self.fetches, params)
        options = _limited(Options.from_env(), limit)
        options = options if dtype is None else replace(options, dtype=dtype)
        return Predictor(model, options=options, place=place)


@dataclass(frozen=True)
class CompiledModel(SavedModel):
    """A model compiled ahead of time; its parameters are in its package."""

    def predictor(
        self, dtype: str | None = None, limit: int | None = None, place: Place | None = None
    ) -> Predictor:
        """A predictor that compiles nothing; raises CommandError if a `dtype` is requested."""
        if dtype is not None:
            raise CommandError(
                "--dtype is for models, not for packages: compile one with FLUID_DTYPE set"
            )
        on = place if isinstance(place, CUDAPlace) else None
        return load_compiled(self.path.parent, on, options=_limited(Options.from_env(), limit))


def _limited(options: Options, limit: int | None) -> Options:
    """Options with a memory limit, if there is one."""
    return options if limit is None else replace(options, memory_limit=limit)


def load_package(folder: Path) -> CompiledModel:
    """Load the model of a package that `fluid compile` wrote; raises the errors of
    `load_compiled`.
    """
    with reading(folder):
        model = model_of(read_package(folder))
    return CompiledModel(folder / MODEL_FILE, model.program, model.feeds, model.fetches, {})


def load_model(folder: Path, model: str | None = None, params: str | None = None) -> SavedModel:
    """Load a model saved by `save_inference_model`, here or in release 1.8.5.

    `model` and `params` are the file names of the program and of the combined parameters.
    Raises CommandError for a folder without such files or with files of different models, and
    the errors of reading a corrupt file.
    """
    try:
        with reading(folder):
            _expect_files(folder, model, params)
            inference_model = read_inference_model(folder, model, params)
    except FileNotFoundError as error:
        hint = "if all parameters are in one file, name it with --params-filename"
        raise CommandError(f"{error}\n  hint: {hint}") from error
    except RuntimeError as error:
        raise CommandError(str(error)) from error
    arrays = {name: tensor.array for name, tensor in inference_model.params.items()}
    params_by_name = {name: array for name, array in arrays.items() if array is not None}
    path = folder / (model or MODEL_FILE)
    return SavedModel(
        path,
        inference_model.program,
        inference_model.feeds,
        inference_model.fetches,
        params_by_name,
    )


def add_file_names(add: Callable[..., argparse.Action]) -> None:
    """Add the arguments that name the files of a saved model, by a parser's `add_argument`."""
    add(
        "--model-filename", metavar="FILE", help=f"name of the program file (default: {MODEL_FILE})"
    )
    add("--params-filename", metavar="FILE",
        help="name of the combined parameter file, if there is one")  # fmt: skip


def _expect_files(folder: Path, model: str | None, params: str | None) -> None:
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise CommandError(f"{folder} {what}: expected the folder of a saved model")
    for name, option in ((model or MODEL_FILE, "--model-filename"), (params, "--params-filename")):
        if name is not None and not (folder / name).is_file():
            is_model = option == "--model-filename"
            holds = " holds no model: it" if is_model else ""
            hint = f"if the file has another name, pass {option} NAME"
            raise CommandError(
                f"{folder}{holds} has no file {name!r}, but {listing(folder)}\n"
                f"  hint: {hint_of_program(folder) if is_model else hint}"
            )


def listing(folder: Path) -> str:
    """The names in a folder, or the first of many."""
    names = visible_names(folder)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more if names else "nothing"


def hint_of_program(folder: Path) -> str:
    """What to pass if the program has another name: that of the file which is one, if any is."""
    found = next((name for name in visible_names(folder) if _is_program(folder / name)), None)
    if found is None:
        return "if the program has another name, pass --model-filename NAME"
    return f"pass --model-filename {found}"


def _is_program(path: Path) -> bool:
    """Whether a file can be read as a saved program with feeds."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_PROGRAM:
            return False
        program = load_program(path.read_bytes(), path.name)
    except (OSError, CompileError):
        return False
    return any(op.type == "feed" for op in program.blocks[0].ops)


def shape_text(var: Variable) -> str:
    """Dtype and declared shape of a variable, -1 for a dynamic dim.

    Raises CompileError for a variable that is not a tensor.
    """
    if not var.holds_tensor or var.dims is None:
        raise CompileError(f"variable {var.name!r} of the model has no declared shape")
    return f"{var.element.numpy} [{', '.join(map(str, var.dims))}]"
