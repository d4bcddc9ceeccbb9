"""Assembly of a module: its steps, as a target writes them, and the text around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from compiler.codegen.collectives import alone_source, collectives
from compiler.codegen.module import KernelSpec, Module, buffer_row, param_row, tensor_row
from compiler.codegen.module_writer import ModuleWriter
from compiler.codegen.offset_checks import check_offsets, note_written_offsets
from compiler.codegen.size_checks import check_sizes
from compiler.codegen.value_checks import given_rows
from compiler.errors import CompileError
from compiler.ir.types import DType
from compiler.plan import Plan, Step, Tensor, tensor
from compiler.support.dataclass import dataclass
from compiler.support.escape import expect_one_line
from compiler.support.thresholds import threshold

_TUPLES = "from collections import namedtuple"
_NUMBERS = "from math import inf, nan"
_BFLOAT16 = "import ml_dtypes  # registers 'bfloat16' with NumPy"
_NUMBER = re.compile(r"(?<![\w.'])(inf|nan)(?![\w'])")
"""`inf` or `nan` in generated code; Python has no literal for them."""


@dataclass(frozen=True)
class Style:
    """The parts of a module that depend on the target: its name, imports and script.

    `code` writes what follows `bind`, once all steps are written.
    """

    target: str
    title: str
    imports: tuple[str, ...]
    script: str
    code: Callable[[], Sequence[str]] = tuple


def assemble(
    plan: Plan,
    writer: ModuleWriter,
    emit: Callable[[ModuleWriter, Step], None],
    style: Style,
    poison: bool = False,
) -> Module:
    """Generate a module; `emit` writes each step into the writer."""
    arguments = [writer.operand(value).name for value in plan.feeds]
    schedule = collectives(plan)
    writer.globals += alone_source(plan)
    writer.producers |= {
        value.label: op.kind
        for step in plan.steps
        for op in step.ops
        for values in op.outputs.values()
        for value in values
    }
    writer.given_rows |= given_rows(plan.steps)
    for step in plan.steps:
        writer.step = step.index
        _emit_located(writer, step, emit)
        if poison:
            writer.poison_dead_buffers(step.index)
    writer.finish()
    results = ", ".join(writer.operand(value).name for value in plan.results)
    feeds = tuple(tensor(str(value.home), value.type) for value in plan.feeds)
    pairs = zip(plan.fetches, plan.results, strict=True)
    fetches = tuple(tensor(name, value.type) for name, value in pairs)
    edges = (feeds, plan.params, fetches)
    returned = f"({results}{',' * bool(results)})"
    source = _source(plan, writer, arguments, returned, edges, style, schedule)
    kernels = tuple(KernelSpec(*row) for row in writer.kernels)
    own = (tuple(writer.buffers), kernels, schedule)
    return Module(plan.name, style.target, source, plan.dims, *edges, *own)


_SLIPS = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError),
    *(RuntimeError, StopIteration, TypeError, ValueError),
)
"""Errors of Python and NumPy over sizes and attributes that the code of an op cannot take."""


def _emit_located(
    writer: ModuleWriter, step: Step, emit: Callable[[ModuleWriter, Step], None]
) -> None:
    """Emit a step; NumPy's errors are reported with the op and its source line."""
    text, source = writer.location = " and ".join(op.text for op in step.ops), step.ops[-1].source
    try:
        check_sizes(writer, step)
        check_offsets(writer, step)
        emit(writer, step)
        note_written_offsets(writer, step)
    except CompileError as error:
        if error.op or error.source:
            raise
        raise type(error)(error.message, op=text, source=source, hint=error.hint) from error
    except _SLIPS as error:
        raise CompileError(f"{text}: {error}", source=source) from error


# ---- the module's text -------------------------------------------------------------------------


def _source(
    plan: Plan, writer: ModuleWriter, arguments: Sequence[str], results: str,
    edges: tuple[tuple[Tensor, ...], ...], style: Style, schedule: Sequence[str],
) -> str:  # fmt: skip
    ops = sum(len(step.ops) for step in plan.steps)
    constants = [expect_one_line(line) for line in writer.globals]
    body = [*constants, *_definitions(writer), *_bind(plan, writer, arguments, results)]
    head = [
        f'"""{ops} ops in {len(plan.steps)} steps, {style.title}.',
        "",
        "Generated code, made to be read and edited. `bind` takes arrays once per set of sizes and",
        "returns `step`, which computes. Run this file to try it on random data.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *_imports(writer, body),
        *style.imports,
        *([_BFLOAT16] if _uses_bfloat16(plan, body) else []),
        "",
        f"NAME = {plan.name!r}",
        f"TARGET = {style.target!r}",
        f"DIMS = {plan.dims!r}",
        *_table("FEEDS", (tensor_row(each) for each in edges[0])),
        *_table("PARAMS", (param_row(each) for each in edges[1])),
        *_table("FETCHES", (tensor_row(each) for each in edges[2])),
        "# name, bytes, first step, step after the last",
        *_table("BUFFERS", (buffer_row(each) for each in writer.buffers)),
        *(
            ["# name, types of parameters, constants, options of the compiler"]
            if writer.kernels
            else []
        ),
        *(_table("KERNELS", writer.kernels) if writer.kernels else []),
        *(["# collectives, in the order all ranks must run them"] if schedule else []),
        *(_lines("COLLECTIVES", schedule) if schedule else []),
        "",
    ]
    lines = [*map(expect_one_line, head), *body, *style.code()]
    return "\n".join(lines) + "\n\n\n" + style.script


def _imports(writer: ModuleWriter, body: Sequence[str]) -> list[str]:
    if writer.globals:
        tuples = [_TUPLES] * any("= namedtuple(" in line for line in writer.globals)
        return [*tuples, _NUMBERS, "from types import SimpleNamespace", ""]
    return [_NUMBERS, ""] if any(map(_NUMBER.search, body)) else []


def _uses_bfloat16(plan: Plan, body: Sequence[str]) -> bool:
    name = DType.BF16.numpy_name
    edges = [*plan.params, *(tensor(value.label, value.type) for value in plan.feeds)]
    return any(each.dtype == name for each in edges) or any(repr(name) in line for line in body)


def _table(name: str, rows: Iterable[tuple[Any, ...]]) -> list[str]:
    lines = [f"    {row!r}," for row in rows]
    return [f"{name} = (", *lines, ")"] if lines else [f"{name} = ()"]


def _lines(name: str, texts: Sequence[str]) -> list[str]:
    return [f"{name} = (", *(f"    {text!r}," for text in texts), ")"]


def _definitions(writer: ModuleWriter) -> list[str]:
    return [line for source in writer.functions for line in ("", "", source.rstrip())]


CLOSURE = threshold(
    "captured_variables", 1000, "variables",
    "a step captures no more as a closure: CPython's compiler would take quadratic time", small=3,
)  # fmt: skip


def _parameters(writer: ModuleWriter, arguments: Sequence[str]) -> list[str]:
    names = (line.partition(" = ")[0].strip() for line in writer.setup.lines)
    valid = [name for name in names if name.isidentifier()]
    return [*arguments, *(f"{name}={name}" for name in valid if len(valid) > CLOSURE.value)]


def _bind(plan: Plan, writer: ModuleWriter, arguments: Sequence[str], results: str) -> list[str]:
    return [
        "",
        "",
        f"def bind({', '.join(['take', 'params', *plan.dims])}):",
        '    """Create every view once; the step updates the arrays in place."""',
        *writer.setup.lines,
        "",
        f"    def step({', '.join(_parameters(writer, arguments))}):",
        *writer.body.lines,
        f"        return {results}",
        "",
        "    return step",
    ]
