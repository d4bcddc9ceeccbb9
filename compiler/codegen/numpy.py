"""The NumPy target: a plan as one readable module, a straight function over views of an arena."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.codegen.bind_and_run import Frame
from compiler.codegen.collectives import alone_source, collectives
from compiler.codegen.control_flow import BODIES, emit_body
from compiler.codegen.dynamic_values import emit_open
from compiler.codegen.epilogue import head_and_tail
from compiler.codegen.half_precision import narrow, reads_half, widened
from compiler.codegen.module import KernelSpec, Module
from compiler.codegen.nan_checks import check_outputs
from compiler.codegen.pointwise import emit_pointwise
from compiler.codegen.reference_calls import ShapeOf, call_meaning
from compiler.errors import CompileError
from compiler.escape import expect_one_line
from compiler.ir.dims import Dim, Size
from compiler.ir.graph import Op
from compiler.ir.opdef import OpDef, Pointwise, call, has
from compiler.ir.types import DType
from compiler.plan import Buffer, Plan, PlannedOp, Step, Tensor, Value, tensor

_NUMBERS = "from math import inf, nan"
_BFLOAT16 = "import ml_dtypes  # lets NumPy know 'bfloat16'"
_NUMBER = re.compile(r"(?<![\w.'])(inf|nan)(?![\w'])")
"""A number that Python has no literal for, which an op wrote into its code."""
_SCRIPT = (Path(__file__).parent / "script.py.txt").read_text(encoding="utf-8")
"""What a module does when it is run by itself."""


class NumpyTarget:
    """Writes modules that need NumPy and nothing else."""

    name = "numpy"

    def supports(self, op: Op) -> str:
        """Every op with a meaning runs here, and so do those that steer."""
        steers = op.body is not None or op.kind == "delete_var"
        known = steers or isinstance(op.defn, Pointwise) or has(op.defn, "numpy")
        return "" if known else f"{op.kind} has neither `compute` nor `numpy`"

    def emit(self, plan: Plan, poison: bool = False, check_numbers: bool = False) -> Module:
        """The module of a plan: its source is the same bytes for the same plan.

        With `poison`, memory is filled with NaN or the smallest integer behind the last step that
        needs it, so that a plan that gives it away too early shows in what is computed. With
        `check_numbers`, a step stops at the first op that computes what is no finite number.
        """
        frame = Frame(plan.dims, plan.buffers)
        frame.expects_numbers = check_numbers
        return assemble(plan, frame, emit_step, STYLE, poison)


@dataclass(frozen=True)
class Style:
    """What modules of a target have of their own: its name, imports, and how one runs by itself."""

    target: str
    title: str
    imports: tuple[str, ...]
    script: str


STYLE = Style("numpy", "for NumPy", ("import numpy as np",), _SCRIPT)


def assemble(
    plan: Plan,
    frame: Frame,
    emit: Callable[[Frame, Step], None],
    style: Style,
    poison: bool = False,
) -> Module:
    """The module whose steps `emit` writes into a frame."""
    arguments = [frame.operand(value).name for value in plan.feeds]
    schedule = collectives(plan)
    frame.globals += alone_source(plan)
    for step in plan.steps:
        frame.step = step.index
        _told(frame, step, emit)
        if poison:
            frame.spoil(step.index)
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


def _told(frame: Frame, step: Step, emit: Callable[[Frame, Step], None]) -> None:
    """Emit a step; what NumPy says of it already now is told with the op and the user's line."""
    try:
        emit(frame, step)
    except CompileError:
        raise
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        text = " and ".join(op.text for op in step.ops)
        raise CompileError(f"{text}: {error}", source=step.ops[-1].source) from error


def emit_step(frame: Frame, step: Step) -> None:
    """Comments that name the ops and the user's lines, then the code of the kernel."""
    tell_ops(frame, step)
    first = step.ops[0]
    if first.kind == "delete_var":
        for value in (value for values in first.inputs.values() for value in values):
            frame.forget(value)
    elif first.kind in BODIES:
        emit_body(frame, first, emit_step)
    elif any(value.type.is_open for value in first.values):
        emit_open(frame, first)
    elif isinstance(first.defn, Pointwise):
        emit_pointwise(frame, step)
    elif len(step.ops) > 1:
        head, tail = head_and_tail(frame, step)
        _emit_op(frame, head)
        emit_pointwise(frame, tail)
    else:
        _emit_op(frame, first)
    check_outputs(frame, step)


def tell_ops(frame: Frame, step: Step) -> None:
    """Comments that name the ops of a step and the user's lines."""
    for op in step.ops:
        frame.body.comment(op.text + f"  {op.source}" * bool(op.source))


def _emit_op(frame: Frame, op: PlannedOp) -> None:
    """An op's own lowering, or a call of its meaning, carried into the module."""
    values = {
        slot: _operands(frame, op.defn, slot, values)
        for slot, values in {**op.inputs, **op.outputs}.items()
    }
    wide, results = widened(frame, op, values) if reads_half(op) else (values, [])
    if has(op.defn, "lower"):
        call(op.defn, "lower", wide, frame)
    else:
        call_meaning(frame, op, wide)
    narrow(frame, results)


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
        "Generated, and yours to read and edit. `bind` takes arrays once for a set of sizes and",
        "returns `step`, which computes. Run this file to try it on made-up numbers.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *_imports(frame, body),
        *style.imports,
        *([_BFLOAT16] if _holds_bfloat16(plan, body) else []),
        "",
        f"NAME = {plan.name!r}",
        f"TARGET = {style.target!r}",
        f"DIMS = {plan.dims!r}",
        *_table("FEEDS", (_tensor_row(each) for each in edges[0])),
        *_table("PARAMS", (_param_row(each) for each in edges[1])),
        *_table("FETCHES", (_tensor_row(each) for each in edges[2])),
        "# name, bytes, first step, step after the last",
        *_table("BUFFERS", (_buffer_row(each) for each in frame.buffers)),
        *(
            ["# name, types of parameters, constants, options of the compiler"]
            if frame.kernels
            else []
        ),
        *(_table("KERNELS", frame.kernels) if frame.kernels else []),
        *(["# what all ranks must do in this order"] if schedule else []),
        *(_lines("COLLECTIVES", schedule) if schedule else []),
        "",
    ]
    return "\n".join([*map(expect_one_line, head), *body]) + "\n\n\n" + style.script


def _imports(frame: Frame, body: Sequence[str]) -> list[str]:
    if frame.globals:
        return [_NUMBERS, "from types import SimpleNamespace", ""]
    return [_NUMBERS, ""] if any(map(_NUMBER.search, body)) else []


def _holds_bfloat16(plan: Plan, body: Sequence[str]) -> bool:
    name = DType.BF16.numpy.name
    edges = [*plan.params, *(tensor(value.label, value.type) for value in plan.feeds)]
    return any(each.dtype == name for each in edges) or any(repr(name) in line for line in body)


def _table(name: str, rows: Iterable[tuple[Any, ...]]) -> list[str]:
    lines = [f"    {row!r}," for row in rows]
    return [f"{name} = (", *lines, ")"] if lines else [f"{name} = ()"]


def _lines(name: str, texts: Sequence[str]) -> list[str]:
    return [f"{name} = (", *(f"    {text!r}," for text in texts), ")"]


def _tensor_row(each: Tensor) -> tuple[Any, ...]:
    return (each.name, each.dtype, tuple(map(_literal, each.shape)))


def _param_row(each: Tensor) -> tuple[Any, ...]:
    return (*_tensor_row(each), each.given, *((True,) if each.on_device else ()))


def _buffer_row(each: Buffer) -> tuple[Any, ...]:
    row = (each.name, _literal(each.nbytes), each.start, each.stop)
    return (*row, *((True,) if each.on_device else ()))


def _literal(size: Size) -> int | str:
    return str(size) if isinstance(size, Dim) else size


def _definitions(frame: Frame) -> list[str]:
    return [line for source in frame.functions for line in ("", "", source.rstrip())]


CLOSURE = 1000
"""Names a step takes from around it at most; beyond, Python's compiler needs time by their square,
and they come as defaults."""


def _parameters(frame: Frame, arguments: Sequence[str]) -> list[str]:
    begun = (line.partition(" = ")[0].strip() for line in frame.setup.lines)
    kept = [name for name in begun if name.isidentifier()]
    return [*arguments, *(f"{name}={name}" for name in kept if len(kept) > CLOSURE)]


def _bind(plan: Plan, frame: Frame, arguments: Sequence[str], results: str) -> list[str]:
    return [
        "",
        "",
        f"def bind({', '.join(['take', 'params', *plan.dims])}):",
        '    """Take every array once; the step writes where they are."""',
        *frame.setup.lines,
        "",
        f"    def step({', '.join(_parameters(frame, arguments))}):",
        *frame.body.lines,
        f"        return {results}",
        "",
        "    return step",
    ]
