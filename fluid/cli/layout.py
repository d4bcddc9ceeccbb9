"""Where the files of a saved model lie: one program, and its parameters together or one by one.

Fluid saves `__model__` and a file for each parameter, or one file for all under a name of the
user's choice; later releases save `NAME.pdmodel` and `NAME.pdiparams`. The commands take any of
these for what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.ir.model_format.program_desc import load_program
from compiler.ir.program import VarKind
from fluid.cli.model import CommandError
from fluid.framework import Program
from fluid.saving.inference_model import MODEL_FILE
from fluid.saving.persistables import is_persistable
from runtime.files.atomic_saves import reading, visible_names
from runtime.files.checkpoint import tensor_path

LATER_MODEL, LATER_PARAMS = ".pdmodel", ".pdiparams"
COMBINED_FILE = "__params__"
_COMBINED = (COMBINED_FILE, "params")
"""What a file with all parameters is called most often."""
_LISTED = 8


@dataclass(frozen=True)
class Layout:
    """The folder and file names of a model; without `params`, each parameter has its own file."""

    folder: Path
    model: str
    params: str | None = None

    @property
    def program(self) -> Path:
        """The file of the program."""
        return self.folder / self.model

    def files(self, names: Sequence[str]) -> list[Path]:
        """Every file of a model whose parameters have these names.

        Raises CheckpointError for a name that no file can have.
        """
        if self.params is not None:
            return [self.program, self.folder / self.params]
        return [self.program, *(tensor_path(self.folder, name) for name in names)]

    def __str__(self) -> str:
        rest = f"all in {self.params}" if self.params else "in a file each"
        return f"{self.program}, parameters {rest}"


def locate(path: Path, model: str | None = None, params: str | None = None) -> Layout:
    """The layout of the model in a folder, of a program file, or of a NAME without its .pdmodel.

    `model` and `params` name files where they are not called as usual. Raises CommandError where
    there is no program or more than one, and what reading a corrupt program raises.
    """
    with reading(path if path.is_dir() else path.parent):
        return _located(path, model, params)


def _located(path: Path, model: str | None, params: str | None) -> Layout:
    folder, model = _program(path, model)
    if not (folder / model).is_file():
        raise CommandError(f"{folder} has no file {model!r}, but {_listing(folder)}")
    if params is not None and not (folder / params).is_file():
        raise CommandError(f"{folder} has no file {params!r}, but {_listing(folder)}")
    return Layout(folder, model, params or _combined(folder, model))


def saved_names(program: Path) -> list[str]:
    """The names of what is saved beside a program, in order of its variables.

    Raises CompileError for a file that is no program; OSError.
    """
    found = load_program(program.read_bytes(), str(program), factory=Program).list_vars()
    kept = [var for var in found if is_persistable(var) and var.kind is not VarKind.RAW]
    return [var.name for var in kept]


def _program(path: Path, model: str | None) -> tuple[Path, str]:
    """The folder and name of the program file, which may yet not be there."""
    if path.is_dir():
        return path, model or _program_in(path)
    if path.is_file():
        return path.parent, model or path.name
    later = path.with_name(path.name + LATER_MODEL)
    if later.is_file():
        return path.parent, model or later.name
    raise CommandError(f"{path} is not there: give the folder or the .pdmodel of a saved model")


def _program_in(folder: Path) -> str:
    if (folder / MODEL_FILE).is_file():
        return MODEL_FILE
    later = sorted(file.name for file in folder.glob(f"*{LATER_MODEL}"))
    if len(later) == 1:
        return later[0]
    hint = "say --model-filename NAME"
    if later:
        raise CommandError(f"{folder} holds {len(later)} programs, {', '.join(later)}: {hint}")
    raise CommandError(
        f"{folder} holds no model: it has no {MODEL_FILE} and no {LATER_MODEL} file, but "
        f"{_listing(folder)}; if the program has another name, {hint}"
    )


def _combined(folder: Path, model: str) -> str | None:
    """The file with all parameters; None where each has its own, or no file looks like it."""
    later = Path(model).stem + LATER_PARAMS
    if (folder / later).is_file():
        return later
    names = saved_names(folder / model)
    if all(path.is_file() for path in Layout(folder, model).files(names)):
        return None
    files = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    others = [name for name in files if name != model and name not in names]
    usual = [name for name in _COMBINED if name in others]
    return next(iter(usual), others[0] if len(others) == 1 else None)


def _listing(folder: Path) -> str:
    names = visible_names(folder)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more if names else "nothing"
