"""`fluid run`: run a script of release 1.8 unchanged; `import paddle` imports this package."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType

from compiler.support.settings.fluid import FLUID_RUN_OPTIONS
from compiler.support.settings.setting import export
from compiler.support.tracebacks import hide_frames
from fleet.launch.adopt import adopt
from fluid.cli.model import CommandError
from fluid.cli.on_cpu import use_cpu
from fluid.cli.target import use_target
from fluid.cli.terminal import INTERRUPTED
from fluid.compat.as_paddle import install_as_paddle
from fluid.compat.old_python.arrays import converts
from fluid.compat.old_python.mend import mend
from fluid.compat.startup.children import PaddleFinder
from fluid.compat.startup.variables import child_variables
from fluid.profiler import tracing

__all__ = ["prepare", "prepare_child", "run_script"]

ONE_ELEMENT = re.compile("only 0-dimensional arrays can|number is required, not numpy.ndarray")
ONE_ELEMENT_HINT = """\
hint: since NumPy 2.4 an array of shape [1] does not convert to a number, and `fluid run` cannot
change that in this build of Python. Fetched arrays still do; for others install 'numpy<2.4'."""

BROUGHT_BY_WHEEL = {
    "cv2": "opencv-python", "PIL": "pillow", "google": "protobuf", "yaml": "pyyaml",
    **{name: name for name in (
        "astor", "decorator", "funcsigs", "gast", "graphviz", "matplotlib", "nltk", "objgraph",
        "prettytable", "rarfile", "requests", "scipy", "six",
    )},
}  # fmt: skip
"""Modules that the wheel of release 1.8.5 brought along, and the packages that have them now."""


def prepare(given: argparse.Namespace) -> int:
    """Set up imports, NumPy and arguments as a script of 1.8 expects them; returns 0.

    Processes that the script starts are set up too; in one of them, the options of `fluid run` or
    `fluid shell` that started the first hold too. In a process started by torchrun or srun, the
    environment variables that 1.8 scripts read are set from theirs. Raises CommandError if the
    script does not exist, if another paddle is installed, and for malformed launcher variables.
    """
    if not given.module and not given.script.is_file():
        raise CommandError(
            f"{given.script} is not a file: expected a script, followed by its arguments"
        )
    outer = FLUID_RUN_OPTIONS.read()
    cpu, force = given.cpu or "cpu" in outer, given.force or "force" in outer
    sys.argv = [str(given.script), *given.arguments]
    sys.path[0] = str(Path.cwd() if given.module else given.script.resolve().parent)
    try:
        _prepare_process(cpu, force)
        use_target(given.target)
    except (ImportError, ValueError) as error:
        raise CommandError(str(error)) from error
    try:
        export(child_variables(cpu, force))
    except ValueError as error:
        print(f"fluid run: processes of the script cannot import paddle: {error}", file=sys.stderr)
    return 0


def prepare_child() -> None:
    """Set up a process that a script under `fluid run` started, when it first imports paddle.

    Raises ImportError if another paddle is installed, and ValueError for malformed launcher
    variables.
    """
    options = FLUID_RUN_OPTIONS.read()
    _prepare_process("cpu" in options, "force" in options)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = partial(_show, "")


def _prepare_process(cpu: bool, force: bool) -> None:
    adopt()
    with _without_paddle_finder():
        install_as_paddle(force)
    mend()
    if cpu:
        use_cpu()


@contextmanager
def _without_paddle_finder() -> Generator[None]:
    """Let the import system find another paddle, if there is one, within a `with` block."""
    finders = list(sys.meta_path)
    sys.meta_path[:] = [each for each in finders if not isinstance(each, PaddleFinder)]
    try:
        yield
    finally:
        added = [each for each in sys.meta_path if each not in finders]
        sys.meta_path[:] = [*finders, *added]


def run_script(script: Path, trace: Path | None = None, module: bool = False) -> int:
    """Run a script, or a module by name, as Python does; write a Chrome trace to `trace`.

    An exception of the script ends the process with a traceback that starts in the script;
    Ctrl-C prints one line with the current script line. Returns the exit code.
    """
    sys.excepthook = partial(_show, str(script))
    try:
        with tracing(trace):
            _run(script, module)
    except KeyboardInterrupt as stopped:
        lines = [n for frame, n in walk_tb(stopped.__traceback__) if _is_of(frame, script)]
        where = f"{script}:{lines[-1]}" if lines else str(script)
        print(f"\nfluid run: stopped at {where} (KeyboardInterrupt)", file=sys.stderr)
        return INTERRUPTED
    return 0


def _run(script: Path, module: bool) -> None:
    if module:
        runpy.run_module(str(script), run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(script), run_name="__main__")


def _is_of(frame: FrameType, script: Path) -> bool:
    return frame.f_code.co_filename == str(script)


def _show(
    script: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    hide_frames(error)  # an error of a reader or a data set is raised by no public function
    trace = error.__traceback__ or trace
    while script and trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    if isinstance(error, TypeError) and ONE_ELEMENT.search(str(error)) and not converts():
        error.add_note(ONE_ELEMENT_HINT)
    if isinstance(error, ModuleNotFoundError):
        package = BROUGHT_BY_WHEEL.get((error.name or "").partition(".")[0])
        if package is not None:
            error.add_note(f"hint: Paddle's own wheel brought it along: pip install {package}")
    traceback.print_exception(error.with_traceback(trace))
