"""The output folder of the demo: written atomically, and never over foreign files."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from compiler.support.text_files import write_text
from fluid.cli.model import CommandError

NOTE = "README.txt"
"""The file that marks a folder as the output of a demo."""

UNFINISHED = ".writing-"
"""Name prefix of an unfinished output folder; a killed demo may leave one behind."""

TEXT = """\
Written by `fluid demo`, and written anew by the next one.

report.html      the training program, pass by pass; the memory of its step; its module
inference.html   the same for the saved model, batch norms folded
machine.html     the same as machine code: LLVM IR and assembly of each kernel, and its time
train/, infer/   the graph after each pass as text (00-start.ir, ...), the plan, the Python module
model/           the saved model, in the files of Paddle 1.x
digits.npy       digits to feed it: fluid infer model --input digits.npy
"""


@contextmanager
def replacing(folder: Path) -> Generator[Path]:
    """Yield a temporary folder whose contents replace `folder` at the end, on success.

    Raises CommandError for a folder that contains anything but an earlier demo; OSError.
    """
    expect_ours(folder)
    with _made(folder), TemporaryDirectory(prefix=UNFINISHED, dir=folder) as workshop:
        new, old = Path(workshop, "new"), Path(workshop, "old")
        new.mkdir()
        old.mkdir()
        try:
            yield new
        except OSError as error:
            raise _in_place(error, new, folder) from error
        write_text(new / NOTE, TEXT)
        for child in sorted(new.iterdir()):
            target = folder / child.name
            if target.exists():
                target.rename(old / child.name)
            child.rename(target)


@contextmanager
def _made(folder: Path) -> Generator[None]:
    """Make a folder and its parents, and remove those that are empty after an error or Ctrl-C."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in created:
            with suppress(OSError):
                path.rmdir()
        raise


def _in_place(error: OSError, new: Path, folder: Path) -> OSError:
    """An error of a file in the temporary folder as one of the file that would replace."""
    name = str(error.filename or "")
    if not name.startswith(str(new)):
        return error
    return OSError(error.errno, error.strerror, str(folder / Path(name).relative_to(new)))


def expect_ours(folder: Path) -> None:
    """Raise CommandError for a folder with content that is not an earlier demo's."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CommandError(f"{folder} is a file: choose a folder with --out")
    content = [child for child in folder.iterdir() if not child.name.startswith(UNFINISHED)]
    if content and not _is_note(folder / NOTE):
        raise CommandError(f"{folder} is not empty and holds no demo: choose another with --out")


def _is_note(path: Path) -> bool:
    return path.is_file() and path.read_text("utf-8", "replace").startswith(TEXT.split(",")[0])
