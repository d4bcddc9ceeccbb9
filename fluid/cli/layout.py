"""The file layout of a saved model: the program, and parameters combined or one per file.

Fluid saves `__model__` and a file for each parameter, or one file for all under a name of the
user's choice; later releases save `NAME.pdmodel` and `NAME.pdiparams`. The commands detect which
layout a model has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compiler.ir.model_format.program_desc import load_program
from compiler.ir.program import VarKind
from compiler.support.dataclass import dataclass
from fluid.cli.model import CommandError, hint_of_program, listing
from fluid.framework import Program
from fluid.saving.inference_model import LATER_MODEL, LATER_PARAMS, MODEL_FILE
from fluid.saving.persistables import is_persistable
from runtime.files.atomic_saves import reading
from runtime.files.checkpoint import tensor_path

COMBINED_FILE = "__params__"
_COMBINED = (COMBINED_FILE, "params")
"""The usual names of a combined parameter file."""


@dataclass(frozen=True)
class ModelFiles:
    """The folder and file names of a model; without `params`, each parameter has its own file."""

    folder: Path
    model: str
    params: str | None = None

    @property
    def program(self) -> Path:
        """Path of the program file."""
        return self.folder / self.model

    def files(self, names: Sequence[str]) -> list[Path]:
        """Paths of all files of a model with these parameter names.

        Raises CheckpointError for a name that cannot be a file name.
        """
        if self.params is not None:
            return [self.program, self.folder / self.params]
        return [self.program, *(tensor_path(self.folder, name) for name in names)]

    def __str__(self) -> str:
        rest = f"all in {self.params}" if self.params else "in a file each"
        return f"{self.program}, parameters {rest}"


def locate(path: Path, model: str | None = None, params: str | None = None) -> ModelFiles:
    """Find the layout of a model from a folder, a program file, or a NAME without its .pdmodel.

    `model` and `params` name files with unusual names. Raises CommandError where there is no
    program or more than one, and the errors of reading a corrupt program.
    """
    with reading(path if path.is_dir() else path.parent):
        return _located(path, model, params)


def _located(path: Path, model: str | None, params: str | None) -> ModelFiles:
    folder, model = _program(path, model)
    if not (folder / model).is_file():
        raise CommandError(f"{folder} has no file {model!r}, but {listing(folder)}")
    if params is not None and not (folder / params).is_file():
        raise CommandError(f"{folder} has no file {params!r}, but {listing(folder)}")
    return ModelFiles(folder, model, params or _combined(folder, model))


def saved_names(program: Path) -> list[str]:
    """The names of a program's persistable variables, in order of declaration.

    Raises CompileError for a file that is not a program, and OSError.
    """
    variables = load_program(program.read_bytes(), str(program), factory=Program).list_vars()
    saved = [var for var in variables if is_persistable(var) and var.kind is not VarKind.RAW]
    return [var.name for var in saved]


def _program(path: Path, model: str | None) -> tuple[Path, str]:
    """The folder and name of the program file, which need not exist."""
    if path.is_dir():
        return path, model or _program_in(path)
    if path.is_file():
        return path.parent, model or path.name
    later = path.with_name(path.name + LATER_MODEL)
    if later.is_file():
        return path.parent, model or later.name
    raise CommandError(
        f"{path} does not exist: expected the folder or the .pdmodel of a saved model"
    )


def _program_in(folder: Path) -> str:
    if (folder / MODEL_FILE).is_file():
        return MODEL_FILE
    later = sorted(file.name for file in folder.glob(f"*{LATER_MODEL}"))
    if len(later) == 1:
        return later[0]
    if later:
        listed = ", ".join(later)
        hint = "pass --model-filename NAME"
        raise CommandError(f"{folder} holds {len(later)} programs, {listed}: {hint}")
    raise CommandError(
        f"{folder} holds no model: it has no {MODEL_FILE} and no {LATER_MODEL} file, but "
        f"{listing(folder)}\n  hint: {hint_of_program(folder)}"
    )


def _combined(folder: Path, model: str) -> str | None:
    """Name of the combined parameter file; None if each parameter has its own, or none is found.

    That of a .pdmodel need not exist: later releases save no parameters in files of their own.
    """
    later = Path(model).stem + LATER_PARAMS
    if (folder / later).is_file():
        return later
    names = saved_names(folder / model)
    own = [path.is_file() for path in ModelFiles(folder, model).files(names)[1:]]
    if all(own):
        return None
    if model.endswith(LATER_MODEL) and not any(own):
        return later
    files = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    others = [name for name in files if name != model and name not in names]
    usual = [name for name in _COMBINED if name in others]
    return next(iter(usual), others[0] if len(others) == 1 else None)
