"""Program files as text, drawn and compared: `incubate.fleet.utils.utils` of release 1.8.

Files are `__model__` files, or protobuf text of them, which `str` of a program is.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from compiler.support.escape import dot_string
from fluid.compat.proto.framework_pb2 import ProgramDesc
from fluid.compat.proto.text_format import merge_text
from fluid.framework import Block, Program, Variable
from fluid.io import is_persistable

__all__ = [
    "check_pruned_program_vars",
    "graphviz",
    "load_program",
    "load_program_binary",
    "load_program_text",
    "parse_program",
    "program_type_trans",
    "save_program",
]

LOG = logging.getLogger(__name__)
DRAWING_SECONDS = 60


def load_program(model_filename: str, is_text: bool = False) -> Program:
    """Load the program of a file of bytes or text.

    Raises CompileError if it is malformed, ValueError with the line for text that is no program.
    """
    return load_program_text(model_filename) if is_text else load_program_binary(model_filename)


def load_program_binary(model_filename: str) -> Program:
    """Load the program of a file of bytes; CompileError if it is malformed."""
    return Program.parse_from_string(Path(model_filename).read_bytes())


def load_program_text(model_filename: str) -> Program:
    """Load the program of a file of text; raises as `load_program` does."""
    message = ProgramDesc()
    text = Path(model_filename).read_text(encoding="utf-8", errors="surrogateescape")
    merge_text(text, message, where=model_filename)
    return Program.parse_from_string(message.SerializeToString())


def save_program(
    program: Program, model_filename: str = "__model__", is_text: bool = False
) -> None:
    """Write a program into a file, as protobuf text or as bytes."""
    path = Path(model_filename)
    if is_text:
        path.write_text(str(program), encoding="utf-8")
    else:
        path.write_bytes(program.serialize_to_string())


def program_type_trans(prog_dir: str, prog_fn: str, is_text: bool) -> str:
    """Write the program of a file next to it, and return the name.

    A file of bytes becomes text, `<name>.pbtxt`, and text becomes bytes, `<name>.bin`. Raises as
    `load_program` does.
    """
    program = load_program(str(Path(prog_dir) / prog_fn), is_text)
    name = f"{prog_fn}.bin" if is_text else f"{prog_fn}.pbtxt"
    save_program(program, str(Path(prog_dir) / name), is_text=not is_text)
    return name


def graphviz(block: Block, output_dir: str = "", filename: str = "debug") -> None:
    """Write a block as `<filename>.dot` and, if Graphviz is installed, as `<filename>.pdf`."""
    path = Path(output_dir) / f"{filename}.dot"
    path.write_text("\n".join(_dot_lines(block)), encoding="utf-8")
    command = shutil.which("dot")
    if command is not None:
        picture = ["-Tpdf", str(path), "-o", str(path.with_suffix(".pdf"))]
        subprocess.run([command, *picture], check=True, timeout=DRAWING_SECONDS)


def _dot_lines(block: Block) -> Iterable[str]:
    yield "digraph G {"
    for number, op in enumerate(block.ops):
        node = dot_string(f"op {number}")
        yield f"{node} [shape=box, label={dot_string(op.type)}]"
        yield from (f"{dot_string(name)} -> {node}" for name in op.input_arg_names)
        yield from (f"{node} -> {dot_string(name)}" for name in op.output_arg_names)
    yield "}"


def check_pruned_program_vars(train_prog: Program, pruned_prog: Program) -> bool:
    """Whether the parameters of a pruned program have the shapes and dtypes of the training
    program.

    Parameters that differ, or are not in the training program, are logged; the latter are not an
    error.
    """
    variables, matches = train_prog.global_block().vars, True
    for var in filter(is_persistable, pruned_prog.list_vars()):
        trained = variables.get(var.name)
        if trained is None:
            LOG.error("not find variable '%s' in train program. please check pruning.", var.name)
        elif (trained.shape, trained.dtype) != (var.shape, var.dtype):
            LOG.error("variable: %s not match: %s, trained as %s", var.name, var, trained)
            matches = False
    return matches


def parse_program(program: Program, output_dir: str) -> None:
    """Write `vars_persistable.log`, `vars_all.log` and `ops.log`, one line per entry."""
    folder, vars = Path(output_dir), list(program.list_vars())
    persistable = [var for var in vars if is_persistable(var)]
    _write(folder / "vars_persistable.log", "persistable vars:", map(_described, persistable))
    _write(folder / "vars_all.log", "all vars:", map(_described, vars))
    ops = [
        {"type": op.type, "input_arg_names": op.input_arg_names,
         "output_arg_names": op.output_arg_names}
        for op in program.global_block().ops
    ]  # fmt: skip
    _write(folder / "ops.log", "ops:", ops)


def _described(var: Variable) -> dict[str, object]:
    description: dict[str, object] = {"name": var.name, "type": str(var.type)}
    if var.holds_tensor:
        description |= {
            "shape": str(var.shape),
            "lod_level": var.lod_level,
            "dtype": str(var.dtype),
        }
    return description


def _write(path: Path, title: str, lines: Iterable[object]) -> None:
    path.write_text("\n".join([title, *map(str, lines), ""]), encoding="utf-8")
