"""`fluid infer --describe`: a model's feeds, fetches, ops and parameters, without running it.

Only the program is read, so a model can be described if parameters are missing or ops are
unsupported: those are listed with their block and op index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from shlex import quote
from textwrap import fill

from compiler.errors import CompileError
from compiler.ir.model_format.program_desc import load_program
from compiler.ir.opdef import check_attributes
from compiler.ir.opdef.type_inference import bind, check_slots, op_text
from compiler.ir.program import OpDesc, VarKind
from compiler.report.memory import size_text
from compiler.report.table import count, table
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line
from fluid.cli.layout import ModelFiles
from fluid.cli.model import shape_text
from fluid.cli.values.images import accepts_images
from fluid.framework import Program, Variable
from fluid.inference.packages import model_of
from fluid.saving.inference_model import edges
from fluid.saving.persistables import is_persistable
from runtime.files.atomic_saves import reading
from runtime.packages import OBJECTS, Package, read_package

__all__ = ["Description", "Obstacle", "describe", "described"]

LISTED = 20
"""Number of parameters listed by name; if there are more, the largest are listed."""

NAMED = 5
"""Number of unsupported ops listed for each op type."""


@dataclass(frozen=True)
class Obstacle:
    """An op that cannot run here: its type, the reason, its location, its text and
    the user's line.
    """

    kind: str
    why: str
    where: str
    text: str
    source: str


@dataclass(frozen=True)
class Description:
    """The interface and contents of a model, read from its program."""

    layout: ModelFiles
    program: Program
    feeds: tuple[Variable, ...]
    fetches: tuple[Variable, ...]
    params: tuple[Variable, ...]
    missing: tuple[Path, ...]
    obstacles: tuple[Obstacle, ...]


def describe(layout: ModelFiles) -> Description:
    """Read the program of a model and check that its ops are supported.

    Raises CompileError for a file that is not a program, and OSError.
    """
    with reading(layout.folder):
        return _described(layout)


def _described(layout: ModelFiles) -> Description:
    where = str(layout.program)
    program = load_program(layout.program.read_bytes(), where, factory=Program)
    variables = [var for var in program.list_vars() if is_persistable(var)]
    params = tuple(var for var in variables if var.kind is not VarKind.RAW)
    files = layout.files([var.name for var in params])
    return Description(
        layout=layout,
        program=program,
        feeds=tuple(edges(program, "feed", where)),
        fetches=tuple(edges(program, "fetch", where)),
        params=params,
        missing=tuple(path for path in files if not path.is_file()),
        obstacles=tuple(_obstacles(program)),
    )


def _obstacles(program: Program) -> Iterator[Obstacle]:
    for block in program.blocks:
        for index, op in enumerate(block.ops):
            if op.type not in ("feed", "fetch") and (why := _why_not(op)):
                where = f"block {block.idx}, op {index}"
                yield Obstacle(op.type, why, where, op_text(op), op.source)


def _why_not(op: OpDesc) -> str:
    """Why an op cannot run here; empty if no reason is known."""
    try:
        check_slots(op)
        check_attributes(op.type, op.attrs)
        bind(op)
    except CompileError as error:
        return error.message
    return ""


# ---- as text ------------------------------------------------------------------------------------


def described(found: Description) -> str:
    """Format a description as text."""
    parts = [_headline(found), _edges(found), _ops(found), _parameters(found), _missing(found)]
    parts.append(_refused(found) or "all ops are supported")
    if found.feeds and not found.obstacles:
        parts.append(f"run it:\n  {_command(found)}")
    return "\n\n".join(filter(None, parts))


def _headline(found: Description) -> str:
    blocks = len(found.program.blocks)
    within = f" in {count(blocks, 'block')}" if blocks > 1 else ""
    return f"{found.layout}: {count(len(_kinds(found)), 'op')}{within}"


def _kinds(found: Description) -> list[str]:
    kinds = [op.type for block in found.program.blocks for op in block.ops]
    return [kind for kind in kinds if kind not in ("feed", "fetch")]


def _edges(found: Description) -> str:
    rows = [("feed", var.name, _type(var), _accepts(var)) for var in found.feeds]
    rows += [("fetch", var.name, _type(var), "") for var in found.fetches]
    for kind, edge in (("feed", found.feeds), ("fetch", found.fetches)):
        rows += [] if edge else [(kind, "none: the program was not saved for inference", "", "")]
    return table(rows, left=4)


def _type(var: Variable) -> str:
    """Dtype, shape and number of LoD levels."""
    if not var.holds_tensor or var.dims is None:
        return var.kind.name.lower().replace("_", " ")
    levels = f", {count(var.lod_level, 'level')} of sequences" if var.lod_level else ""
    return f"{var.element.numpy} [{', '.join(map(str, var.dims))}]{levels}"


def _accepts(var: Variable) -> str:
    return "accepts images" if accepts_images(var) else ""


def _ops(found: Description) -> str:
    kinds = Counter(_kinds(found))
    pairs = ((one_line(kind), times) for kind, times in kinds.items())
    texts = (f"{kind} × {times}" if times > 1 else kind for kind, times in pairs)
    return fill(", ".join(texts), 96, initial_indent="  ", subsequent_indent="  ")


def _parameters(found: Description) -> str:
    """Name, type and bytes of each parameter, or of the largest, as the program declares them."""
    if not found.params:
        return "  no parameters"
    numbers, nbytes = (sum(sizes) for sizes in zip(*map(_sizes, found.params), strict=True))
    total = f"  {count(len(found.params), 'parameter')} with {count(numbers, 'number')}"
    shown = list(found.params)
    if len(shown) > LISTED:
        shown = sorted(shown, key=lambda var: -_sizes(var)[1])[:LISTED]
    rows = [(var.name, _type(var), size_text(_sizes(var)[1])) for var in shown]
    left_out = len(found.params) - len(shown)
    more = [f"  and {left_out} smaller ones"] if left_out else []
    return "\n".join([f"{total}, {size_text(nbytes)}", table(rows, left=2), *more])


def _sizes(var: Variable) -> tuple[int, int]:
    """Number of elements and bytes of a parameter; 0 if a dim is dynamic."""
    numbers = 0 if var.dims is None or min(var.dims, default=0) < 0 else prod(var.dims)
    return numbers, numbers * var.element.numpy.itemsize


def _missing(found: Description) -> str:
    if not found.missing:
        return ""
    names = ", ".join(one_line(path.name) for path in found.missing[:NAMED])
    more = f" and {len(found.missing) - NAMED} more" if len(found.missing) > NAMED else ""
    where = found.layout.folder
    return f"files that are missing in {where}: {names}{more}"


def _refused(found: Description) -> str:
    """The unsupported ops by type and reason, with their locations."""
    groups: dict[tuple[str, str], list[Obstacle]] = {}
    for obstacle in found.obstacles:
        groups.setdefault((obstacle.kind, obstacle.why), []).append(obstacle)
    if not groups:
        return ""
    lines = [f"unsupported: {count(len(found.obstacles), 'op')}"]
    for (kind, why), group in groups.items():
        lines.append(one_line(f"  {kind} × {len(group)}: {why}"))
        lines += [
            one_line(f"    {obstacle.where}: {obstacle.text}  {obstacle.source}".rstrip())
            for obstacle in group[:NAMED]
        ]
        lines += [f"    and {len(group) - NAMED} more"] if len(group) > NAMED else []
    return "\n".join(lines)


def _command(found: Description) -> str:
    """An example command line that feeds the model."""
    inputs = (f"--input {quote(f'{var.name}={_file(var)}')}" for var in found.feeds)
    return one_line(f"fluid infer {found.layout.program} {' '.join(inputs)}")


def _file(var: Variable) -> str:
    if accepts_images(var):
        return "image.png"
    return "sequences.txt" if var.lod_level else f"{var.name}.npy"


def package_described(folder: Path) -> str:
    """Describe a package that `fluid compile` wrote: its GPUs or CPUs, feeds and fetches."""
    with reading(folder):
        package = read_package(folder)
        model = model_of(package)
    ends = [("feed", var) for var in model.feeds] + [("fetch", var) for var in model.fetches]
    rows = [(kind, var.name, shape_text(var)) for kind, var in ends]
    return f"{folder}: a package, {_code_text(package)}\n\n{table(rows, left=3)}"


def _code_text(package: Package) -> str:
    """What a package has code for, and how much of it."""
    if package.cpus:
        code = sum(package.files[f"{level}/{OBJECTS}"].nbytes for level in package.cpus)
        return f"for CPUs with {', '.join(package.cpus)}, {size_text(code)} of code"
    if not package.rows:
        return "NumPy code"
    kernels = len({row.kernel for row in package.rows})
    code = sum(package.files[row.file].nbytes for row in package.rows)
    return f"{count(kernels, 'kernel')} for {', '.join(package.gpus)}, {size_text(code)} of code"
