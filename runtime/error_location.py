"""Error locations: the op that raised an error in a step, and the user's line that created it.

The generator writes a comment above the code of each op, `# <op>  <the user's line>`; fused ops
have one each.
"""

from __future__ import annotations

from itertools import dropwhile, takewhile
from pathlib import Path
from traceback import walk_tb

import numpy as np

from compiler.errors import WrongResult
from runtime.errors import OutOfBounds, StepError, TooLarge, WorkerError

_PACKAGES = Path(np.__file__).parent.parent
_LIBRARIES = tuple(str(_PACKAGES / name) for name in ("numpy", "torch", "triton"))
"""Paths of the libraries that generated code calls."""
_HELPERS = str(Path(__file__).parent / "native" / "repeated.py")
"""The functions of native code that generated code calls with numbers."""
_COMPILED = (".pyx", ".pxd")
"""Ends of the names of Cython's files, which have no path: those of NumPy's random numbers."""


def raise_step_error(error: Exception, filename: str, source: str) -> None:
    """Raise a StepError for an error that a library or generated code raised; TooLarge if out of
    memory.

    `filename` is the name that the code was compiled under, `source` its text. An error of the
    user's function that `py_func` called only gets a note; one that names its op, or that another
    process raised, stays as it is.
    """
    if isinstance(error, OutOfBounds | WrongResult | WorkerError):
        return
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    comments = _comments(error, filename, source)
    if not comments:
        return
    internal = (filename, *_LIBRARIES, _HELPERS, "<")
    after = (file for file in files[files.index(filename) :] if not file.endswith(_COMPILED))
    if not all(file.startswith(internal) for file in after):
        error.add_note("in " + " and ".join(comments))
        return
    texts, lines = zip(*(comment.partition("  ")[::2] for comment in comments), strict=True)
    kind = TooLarge if isinstance(error, MemoryError) else StepError
    raise kind(_sentence(error, texts), op=" and ".join(texts), source=lines[-1]) from error


def _comments(error: Exception, filename: str, source: str) -> list[str]:
    """Return the generated comments of the op, or the fused ones, that raised the error."""
    frames = walk_tb(error.__traceback__)
    numbers = [line for frame, line in frames if frame.f_code.co_filename == filename]
    lines = source.splitlines()[: numbers[0] if numbers else 0]
    above = [line.strip() for line in reversed(lines)]
    from_comment = dropwhile(lambda line: not line.startswith("# "), above)
    comments = list(takewhile(lambda line: line.startswith("# "), from_comment))
    return [comment[2:] for comment in reversed(comments)]


def _sentence(error: Exception, ops: tuple[str, ...]) -> str:
    """Return an op's own message, otherwise NumPy's message prefixed with the op type."""
    kinds = [op.partition(" = ")[2].partition("(")[0] for op in ops]
    text = str(error).strip()
    return text if text.startswith(tuple(kinds)) else f"{' and '.join(kinds)}: {text}"
