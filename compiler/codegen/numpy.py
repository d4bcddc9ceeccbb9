"""The NumPy target: lowers a plan to one readable module of calls over arena views."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.codegen.bind_and_run import Frame
from compiler.codegen.collectives import alone_source, collectives
from compiler.codegen.control_flow import BODIES, emit_body
from compiler.codegen.dynamic_values import emit_dynamic
from compiler.codegen.epilogue import split_anchor
from compiler.codegen.half_precision import cast_back, reads_half, upcast
from compiler.codegen.module import KernelSpec, Module, buffer_row, param_row, tensor_row
from compiler.codegen.nan_checks import check_outputs
from compiler.codegen.offset_checks import check_offsets, note_written_offsets
from compiler.codegen.pointwise import emit_pointwise
from compiler.codegen.reference_calls import ShapeOf, call_reference
from compiler.codegen.size_checks import check_sizes
from compiler.errors import CompileError
from compiler.ir.graph import Op
from compiler.ir.opdef import OpDef, Pointwise, call, has
from compiler.ir.types import DType
from compiler.plan import Plan, PlannedOp, Step, Tensor, Value, tensor
from compiler.support.escape import expect_one_line
from compiler.support.thresholds import threshold

_NUMBERS = "from math import inf, nan"
_BFLOAT16 = "import ml_dtypes  # registers 'bfloat16' with NumPy"
_NUMBER = re.compile(r"(?<![\w.'])(inf|nan)(?![\w'])")
"""`inf` or `nan` in generated code; Python has no literal for them."""
_SCRIPT = (Path(__file__).parent / "script.py.txt").read_text(encoding="utf-8")
"""The code that runs when a module is executed as a script."""


class NumpyTarget:
    """Code generator for modules that need only NumPy."""

    name = "numpy"
    on_device = False
    multiplies_bytes = False

    def supports(self, op: Op) -> str:
        """Empty for an op with a reference and for control flow; otherwise the reason."""
        steers = op.body is not None or op.kind == "delete_var"
        known = steers or isinstance(op.defn, Pointwise) or has(op.defn, "numpy")
        return "" if known else f"{op.kind} has neither `compute` nor `numpy`"

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """Generate the module of a plan; the same plan always yields the same bytes.

        With `poison`, memory is filled with NaN or the smallest integer after the last step that
        needs it, so that a plan that frees it too early yields wrong results. With
        `check_numbers`, a step stops at the first op that computes NaN or infinity.
        """
        frame = Frame(plan.dims, plan.buffers)
        frame.expects_numbers = check_numbers
        return assemble(plan, frame, emit_step, STYLE, poison)


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


STYLE = Style("numpy", "for NumPy", ("import numpy as np",), _SCRIPT)


def assemble(
    plan: Plan,
    frame: Frame,
    emit: Callable[[Frame, Step], None],
    style: Style,
    poison: bool = False,
) -> Module:
    """Generate a module; `emit` writes each step into the frame."""
    arguments = [frame.operand(value).name for value in plan.feeds]
    schedule = collectives(plan)
    frame.globals += alone_source(plan)
    for step in plan.steps:
        frame.step = step.index
        _emit_located(frame, step, emit)
        if poison:
            frame.poison_dead_buffers(step.index)
    frame.finish()
    results = ", ".join(frame.operand(value).name for value in plan.results)
    feeds = tuple(tensor(str(value.home), value.type) for value in plan.feeds)
    pairs = zip(plan.fetches, plan.results, strict=True)
    fetches = tuple(tensor(name, value.type) for name, value in pairs)
    edges = (feeds, plan.params, fetches)
    returned = f"({results}{',' * bool(results)})"
    source = _source(plan, frame, arguments, returned, edges, style, schedule)
    kernels = tuple(KernelSpec(*row) for row in frame.kernels)
    own = (tuple(frame.buffers), kernels, schedule)
    return Module(plan.name, style.target, source, plan.dims, *edges, *own)


# ---- steps -------------------------------------------------------------------------------------


_SLIPS = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError),
    *(RuntimeError, StopIteration, TypeError, ValueError),
)
"""Errors of Python and NumPy over sizes and attributes that the code of an op cannot take."""


def _emit_located(frame: Frame, step: Step, emit: Callable[[Frame, Step], None]) -> None:
    """Emit a step; NumPy's errors are reported with the op and its source line."""
    text, source = frame.location = " and ".join(op.text for op in step.ops), step.ops[-1].source
    try:
        check_sizes(frame, step)
        check_offsets(frame, step)
        emit(frame, step)
        note_written_offsets(frame, step)
    except CompileError as error:
        if error.op or error.source:
            raise
        raise type(error)(error.message, op=text, source=source, hint=error.hint) from error
    except _SLIPS as error:
        raise CompileError(f"{text}: {error}", source=source) from error


def emit_step(frame: Frame, step: Step) -> None:
    """Write comments that name the ops and their source lines, then the code of the step."""
    comment_ops(frame, step)
    first = step.ops[0]
    if first.kind == "delete_var":
        for value in (value for values in first.inputs.values() for value in values):
            frame.free(value)
    elif first.kind in BODIES:
        emit_body(frame, first, emit_step)
    elif any(value.type.is_open for value in first.values):
        emit_dynamic(frame, first)
    elif isinstance(first.defn, Pointwise):
        emit_pointwise(frame, step)
    elif len(step.ops) > 1:
        head, epilogue = split_anchor(frame, step)
        _emit_op(frame, head)
        emit_pointwise(frame, epilogue)
    else:
        _emit_op(frame, first)
    check_outputs(frame, step)


def comment_ops(frame: Frame, step: Step) -> None:
    """Write comments that name the ops of a step and their source lines."""
    for op in step.ops:
        frame.body.comment(op.comment)


def _emit_op(frame: Frame, op: PlannedOp) -> None:
    """Write an op's own lowering, or a call of its reference implementation."""
    values = {
        slot: _operands(frame, op.defn, slot, values)
        for slot, values in {**op.inputs, **op.outputs}.items()
    }
    upcasts, results = upcast(frame, op, values) if reads_half(op) else (values, [])
    if has(op.defn, "lower"):
        call(op.defn, "lower", upcasts, frame)
    else:
        call_reference(frame, op, upcasts)
    cast_back(frame, results)


def _operands(frame: Frame, defn: OpDef, slot: str, values: Sequence[Value]) -> Any:
    declared = defn.slots[slot]
    operands = [ShapeOf(v) if declared.shape_only else frame.operand(v) for v in values]
    return declared.hold(operands)


# ---- the module's text -------------------------------------------------------------------------


def _source(
    plan: Plan, frame: Frame, arguments: Sequence[str], results: str,
    edges: tuple[tuple[Tensor, ...], ...], style: Style, schedule: Sequence[str],
) -> str:  # fmt: skip
    ops = sum(len(step.ops) for step in plan.steps)
    constants = [expect_one_line(line) for line in frame.globals]
    body = [*constants, *_definitions(frame), *_bind(plan, frame, arguments, results)]
    head = [
        f'"""{ops} ops in {len(plan.steps)} steps, {style.title}.',
        "",
        "Generated code, made to be read and edited. `bind` takes arrays once per set of sizes and",
        "returns `step`, which computes. Run this file to try it on random data.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *_imports(frame, body),
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
        *_table("BUFFERS", (buffer_row(each) for each in frame.buffers)),
        *(
            ["# name, types of parameters, constants, options of the compiler"]
            if frame.kernels
            else []
        ),
        *(_table("KERNELS", frame.kernels) if frame.kernels else []),
        *(["# collectives, in the order all ranks must run them"] if schedule else []),
        *(_lines("COLLECTIVES", schedule) if schedule else []),
        "",
    ]
    lines = [*map(expect_one_line, head), *body, *style.code()]
    return "\n".join(lines) + "\n\n\n" + style.script


def _imports(frame: Frame, body: Sequence[str]) -> list[str]:
    if frame.globals:
        return [_NUMBERS, "from types import SimpleNamespace", ""]
    return [_NUMBERS, ""] if any(map(_NUMBER.search, body)) else []


def _uses_bfloat16(plan: Plan, body: Sequence[str]) -> bool:
    name = DType.BF16.numpy.name
    edges = [*plan.params, *(tensor(value.label, value.type) for value in plan.feeds)]
    return any(each.dtype == name for each in edges) or any(repr(name) in line for line in body)


def _table(name: str, rows: Iterable[tuple[Any, ...]]) -> list[str]:
    lines = [f"    {row!r}," for row in rows]
    return [f"{name} = (", *lines, ")"] if lines else [f"{name} = ()"]


def _lines(name: str, texts: Sequence[str]) -> list[str]:
    return [f"{name} = (", *(f"    {text!r}," for text in texts), ")"]


def _definitions(frame: Frame) -> list[str]:
    return [line for source in frame.functions for line in ("", "", source.rstrip())]


CLOSURE = threshold(
    "captured_variables", 1000, "variables",
    "a step captures no more as a closure: CPython's compiler would take quadratic time", small=3,
)  # fmt: skip


def _parameters(frame: Frame, arguments: Sequence[str]) -> list[str]:
    names = (line.partition(" = ")[0].strip() for line in frame.setup.lines)
    valid = [name for name in names if name.isidentifier()]
    return [*arguments, *(f"{name}={name}" for name in valid if len(valid) > CLOSURE.value)]


def _bind(plan: Plan, frame: Frame, arguments: Sequence[str], results: str) -> list[str]:
    return [
        "",
        "",
        f"def bind({', '.join(['take', 'params', *plan.dims])}):",
        '    """Create every view once; the step updates the arrays in place."""',
        *frame.setup.lines,
        "",
        f"    def step({', '.join(_parameters(frame, arguments))}):",
        *frame.body.lines,
        f"        return {results}",
        "",
        *frame.after_step,
        "    return step",
    ]
