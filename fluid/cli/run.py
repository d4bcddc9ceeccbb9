"""`fluid run`: run a script of release 1.8 unchanged; `import paddle` imports this package."""

from __future__ import annotations

import argparse
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
from fluid.cli.commands.interrupts import INTERRUPTED
from fluid.cli.model import CommandError
from fluid.cli.on_cpu import use_cpu
from fluid.cli.script_hints import hint_for
from fluid.cli.target import use_target
from fluid.cli.terminal import (
    PIPE_CLOSED,
    drop_unwritten_output,
    output_is_closed,
)
from fluid.compat.as_paddle import install_as_paddle
from fluid.compat.old_python.mend import mend
from fluid.compat.startup.children import PaddleFinder
from fluid.compat.startup.variables import child_variables
from fluid.profiler import tracing

__all__ = ["prepare", "prepare_child", "run_script"]


def prepare(given: argparse.Namespace) -> int:
    """Set up imports, NumPy and arguments as a script of 1.8 expects them; returns 0.

    Processes that the script starts are set up too; in one of them, the options of `fluid run` or
    `fluid shell` that started the first hold too. In a process started by torchrun or srun, the
    environment variables that 1.8 scripts read are set from theirs. Raises CommandError if the
    script does not exist or is a notebook, if another paddle is installed, and for malformed
    launcher variables.
    """
    if not given.module and not given.script.is_file():
        raise CommandError(
            f"{given.script} is not a file: expected a script, followed by its arguments"
        )
    if not given.module and given.script.suffix == ".ipynb":
        convert = f"jupyter nbconvert --to script {given.script}"
        raise CommandError(f"{given.script} is a notebook, not a script: {convert}")
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
        sys.excepthook = partial(_show, "", False)


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
    Ctrl-C prints one line with the current script line. It ends silently if nobody reads its output
    any more, as in `| head`. Returns the exit code.
    """
    sys.excepthook = partial(_show, str(script), module)
    try:
        with tracing(trace):
            _run(script, module)
        unwritten = drop_unwritten_output()
    except KeyboardInterrupt as stopped:
        lines = [n for frame, n in walk_tb(stopped.__traceback__) if _is_of(frame, script)]
        where = f"{script}:{lines[-1]}" if lines else str(script)
        print(f"\nfluid run: stopped at {where} (KeyboardInterrupt)", file=sys.stderr)
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        if output_is_closed():
            return PIPE_CLOSED
        raise
    if unwritten is not None and not isinstance(unwritten, BrokenPipeError):
        print(f"fluid run: cannot print: {unwritten.strerror}", file=sys.stderr)
        return 1
    return PIPE_CLOSED if unwritten is not None else 0


def _run(script: Path, module: bool) -> None:
    if module:
        runpy.run_module(str(script), run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(script), run_name="__main__")


def _is_of(frame: FrameType, script: Path) -> bool:
    return frame.f_code.co_filename == str(script)


def _show(
    script: str, module: bool, kind: type[BaseException], error: BaseException,
    trace: TracebackType | None,
) -> None:  # fmt: skip
    hide_frames(error)  # an error of a reader or a data set is raised by no public function
    trace = error.__traceback__ or trace
    while script and trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    if hint := hint_for(error, script, module):
        error.add_note(f"  hint: {hint}")
    traceback.print_exception(error.with_traceback(trace))
