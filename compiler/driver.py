"""`compile()`: Program to Module; `dump` writes every stage to files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from compiler.codegen.module import Module
from compiler.codegen.native.machine import MACHINES
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.codegen.target import Target
from compiler.codegen.writer import LONGEST_NAME
from compiler.errors import CompileError, ShapeError, did_you_mean
from compiler.freeze import freeze
from compiler.ir.analysis.placement import runs_on_device
from compiler.ir.conversion.companions import LOD, ROWS
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import Dim, Size, parse_size
from compiler.ir.graph import Graph
from compiler.ir.program import Program, VarDesc
from compiler.ir.text.printer import show
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.dump import Dump
from compiler.passes.manager import Observer, run_passes
from compiler.passes.observers import Guard
from compiler.passes.pipeline import pipeline
from compiler.plan import Plan
from compiler.record import Record, packed
from compiler.support.dataclass import dataclass
from compiler.support.gc_pause import gc_disabled
from compiler.support.lazy_loading import load
from compiler.support.text_files import write_text
from compiler.support.tracebacks import entry_point


def _triton_target() -> Target:
    """The code generator for GPUs, which compilations for CPUs need not import."""
    return load(lambda: import_module("compiler.codegen.triton.target")).TritonTarget()


class _Targets(Mapping[str, Target]):
    """Code generators by name, made when they are first looked up."""

    def __init__(self, **makers: Callable[[], Target]) -> None:
        self._makers = makers
        self._made: dict[str, Target] = {}

    def __getitem__(self, name: str) -> Target:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


TARGETS: Mapping[str, Target] = _Targets(
    numpy=NumpyTarget, native=NativeTarget, triton=_triton_target
)

Feed = Mapping[str, Any] | Sequence[str]
"""The feeds: names, or a mapping from name to shape (ints, or strings for symbolic sizes) or array.

A shape whose first item is a DType is that of a feed whose element type differs from the declared
one.
"""


@dataclass(frozen=True)
class Compiled:
    """Every stage of one compilation."""

    graph: Graph
    plan: Plan
    module: Module
    context: Context = field(default_factory=Context)


@entry_point
def compile(
    program: Program,
    *,
    feed: Feed = (),
    fetch: Sequence[Any] = (),
    target: str | Target = "numpy",
    params: MutableMapping[str, Array] | None = None,
    options: Options | None = None,
    dump: str | Path | None = None,
    observers: Sequence[Observer] = (),
    watch_state: bool = False,
) -> Module:
    """Compile the main block of a program into a module that computes `fetch` from `feed`.

    `feed` is names, or a mapping from name to shape or array; symbolic sizes are names (`"N"`), and
    one module serves all their values. `fetch` is names or variables. `target` is a name, or a code
    generator. `params` passes in constant
    arrays by name, so that trained batch norms and constants can be folded; folded weights are
    added to the mapping. With `watch_state`, what steps prepare from other state that no op writes,
    such as packed weights, is kept from run to run until the state changes. `dump` is a folder for
    every stage: `.ir`, `.dot` and `.__model__` after each pass, `passes.jsonl`, the plan and the
    module. Raises CompileError (or a subclass) naming the op and the user's line.
    """
    return compile_stages(
        program, feed=feed, fetch=fetch, target=target, params=params, options=options,
        dump=dump, observers=observers, watch_state=watch_state,
    ).module  # fmt: skip


def compile_stages(
    program: Program,
    *,
    feed: Feed = (),
    fetch: Sequence[Any] = (),
    target: str | Target = "numpy",
    params: MutableMapping[str, Array] | None = None,
    options: Options | None = None,
    dump: str | Path | None = None,
    observers: Sequence[Observer] = (),
    watch_state: bool = False,
) -> Compiled:
    """Compile as `compile` does; return the graph, the plan and missed optimisations too."""
    with gc_disabled():
        graph = to_graph(
            program, feed_shapes(program, feed), [_name(fetch_target) for fetch_target in fetch]
        )
        return compile_graph(
            graph, target=target, params=params, options=options, dump=dump, observers=observers,
            like=program, watch_state=watch_state, is_converted=True,
        )  # fmt: skip


def compile_graph(
    graph: Graph,
    *,
    target: str | Target = "numpy",
    params: MutableMapping[str, Array] | None = None,
    options: Options | None = None,
    dump: str | Path | None = None,
    observers: Sequence[Observer] = (),
    like: Program | None = None,
    watch_state: bool = False,
    is_converted: bool = False,
) -> Compiled:
    """Compile a graph, which is changed in place; `like` is the program it was converted from, if
    any.

    A graph that was not changed since it was converted (`is_converted`) is verified after the
    passes only, unless `options.check` is set. The module records its initial graph, so that it can
    be explained later.
    """
    settings = options or Options.from_env()
    writer = _target(target) if isinstance(target, str) else target
    target = target if isinstance(target, str) else target.name
    context = Context(params, settings.typical, settings.memory_budget)
    text = show(graph)
    folder = _folder(dump, settings, graph, text)
    all_observers = [*observers, *_observers(settings, folder, like)]
    with gc_disabled():
        run_passes(
            graph, pipeline(settings, _assigned(writer)), context, all_observers,
            is_converted=is_converted and not settings.check,
        )  # fmt: skip
        _check_support(graph)
        plan = _with_constants(planned(graph, settings), params or {}, watch_state)
        module = writer.emit(plan, settings.check >= 1, settings.check_numbers)
    if folder is not None:
        _dump_stages(folder, plan, module)
    record = Record(packed(text), target, settings, context.milliseconds, watch_state)
    return Compiled(
        graph,
        plan,
        replace(module, record=record, memory_limit=settings.memory_limit_bytes),
        context,
    )


def planned(graph: Graph, settings: Options) -> Plan:
    """Freeze a graph, and add the options that a target needs."""
    return replace(
        freeze(graph), in_order=settings.deterministic, tf32=settings.tf32,
        exact_products=settings.exact_products, gpu=settings.gpu, tiles=settings.tiles,
        winograd=settings.winograd, captured=_is_captured(settings), compared=settings.check >= 2,
    )  # fmt: skip


def _is_captured(settings: Options) -> bool:
    """Whether steps may be captured as CUDA graphs, in which no op may be checked or poisoned."""
    return settings.cuda_graph and not settings.check and not settings.check_numbers


def _assigned(target: Target) -> Target | None:
    """Return the target that ops are assigned to; None if all run in NumPy."""
    return None if isinstance(target, NumpyTarget) else target


def _with_constants(plan: Plan, params: Mapping[str, Array], watch_state: bool) -> Plan:
    """Return the plan with the state that no op writes: passed in as constant, or watched."""
    fixed = {param.name for param in plan.params if param.fixed}
    constants = frozenset(fixed & params.keys())
    watched = frozenset(fixed - constants) if watch_state else frozenset[str]()
    return replace(plan, constants=constants, watched=watched)


def _target(name: str) -> Target:
    """The target of a name; `native:avx2` is the native one for CPUs of that level."""
    kind, _, level = name.partition(":")
    if kind == "native" and level in MACHINES:
        return NativeTarget(MACHINES[level])
    if name not in TARGETS:
        hint = did_you_mean(name, TARGETS)
        raise CompileError(
            f"unknown target {name!r}, expected one of: {', '.join(TARGETS)}", hint=hint
        )
    return TARGETS[name]


def _folder(dump: str | Path | None, settings: Options, graph: Graph, text: str) -> Path | None:
    """Return the folder for dumps: `dump`, or a subfolder of the one in the options, or None."""
    if dump is not None or settings.dump is None:
        return None if dump is None else Path(dump)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Path(settings.dump) / f"{_file_name(graph.name)}-{digest[:12]}"


def _file_name(name: str) -> str:
    """Replace every character of a graph's name that is unsafe in a file name.

    >>> _file_name("../main")
    '.._main'
    """
    return re.sub(r"[^\w.-]", "_", name)


def _observers(settings: Options, folder: Path | None, like: Program | None) -> list[Observer]:
    observers: list[Observer] = [Dump(folder, like)] if folder is not None else []
    return observers + ([Guard()] if settings.check >= 2 else [])


def _check_support(graph: Graph) -> None:
    """Raise CompileError for a host op that the NumPy target has no code for."""
    for op in (op for op in graph.ops() if not runs_on_device(op)):
        if why := TARGETS["numpy"].supports(op):
            raise CompileError(f"target 'numpy': {why}", op=repr(op), source=op.source)


def _dump_stages(folder: Path, plan: Plan, module: Module) -> None:
    name = _file_name(plan.name)
    write_text(folder / f"{name}.plan", str(plan))
    module.save(folder / f"{name}.py")


# ---- feeds -------------------------------------------------------------------------------------


def declared_graph(program: Program, feed: Feed, fetch: Sequence[str]) -> Graph:
    """Return the graph of a program for feeds as `compile` takes them, before any pass.

    Where an op requires feeds to have equal LoD, all feeds whose shape is not passed share the name
    of their number of rows. Raises ShapeError where sizes do not fit even so.
    """
    shapes = feed_shapes(program, feed)
    try:
        return to_graph(program, shapes, list(fetch))
    except ShapeError:
        ragged = [name for name in feed if f"{name}{LOD}0" in shapes]
        if len(ragged) < 2:
            raise
    declared = {name: shape for name, shape in shapes.items() if isinstance(shape, tuple)}
    matching = {name: (Dim.named("rows"), *declared[name][1:]) for name in ragged}
    return to_graph(program, {**shapes, **matching}, list(fetch))


def feed_shapes(program: Program, feed: Feed) -> dict[str, Shape | TensorType]:
    """Return the shape of each feed, a name for every unknown size; its type if a DType is given.

    A feed without a given shape has the declared one: the leading unknown size is `N` for all
    feeds, others are named after the variable and the axis. The LoD of a feed `x` is fed as
    `x@LOD0`, …, offsets of shape `("N + 1",)`; it is added automatically if only the name `x` is
    given. If `x@ROWS` is fed, `x` holds the values of sparse rows, and `x@ROWS` the row indices.
    """
    block = program.blocks[0]
    shapes: dict[str, Shape | TensorType] = {}
    stems: dict[str, str] = {}
    for name in list(feed):
        var = block.lookup(name.partition(LOD)[0].removesuffix(ROWS))
        if var is None:
            hint = did_you_mean(name, block.vars)
            raise CompileError(f"feed {name!r} is not a variable of the program", hint=hint)
        value = feed[name] if isinstance(feed, Mapping) else None
        if value is None:
            shapes |= _declared_with_lod(var, _size_prefix(name, stems))
        else:
            shapes[name] = _fed_shape(value)
    return shapes


def _size_prefix(name: str, taken: dict[str, str]) -> str:
    """Return the prefix of a feed's size names: the feed's name as a Python identifier, unique.

    >>> taken = {}
    >>> [_size_prefix(name, taken) for name in ("a.b", "a:b", "0", "a.b")]
    ['a_b', 'a_b_', 'v0', 'a_b']
    """
    clean = "".join(c if c.isascii() and c.isalnum() else "_" for c in name[:LONGEST_NAME])
    clean = f"v{clean}" if not clean or clean[0].isdigit() else clean
    while taken.setdefault(clean, name) != name:
        clean += "_"
    return clean


def _declared_with_lod(var: VarDesc, stem: str) -> dict[str, Shape]:
    """Return the shapes of a feed and of its LoD offsets; the outermost level has `N` sequences.

    The total number of rows of a LoD tensor is a symbolic size named after the variable.
    """
    shape = _declared(var, stem)
    if not var.lod_level:
        return {var.name: shape}
    counts = [Dim.named("N"), *(_size_named(stem, f"level{i}") for i in range(1, var.lod_level))]
    levels: dict[str, Shape] = {f"{var.name}{LOD}{i}": (n + 1,) for i, n in enumerate(counts)}
    rows = _size_named(stem, "rows") if isinstance(shape[0], Dim) else shape[0]
    return {var.name: (rows, *shape[1:]), **levels}


def _fed_shape(value: Any) -> Shape | TensorType:
    """Return the shape of an array, or the shape itself; a type if its first item is a DType."""
    sizes = tuple(getattr(value, "shape", value))
    if sizes and isinstance(sizes[0], DType):
        return TensorType(sizes[0], tuple(map(_size, sizes[1:])))
    return tuple(map(_size, sizes))


def _size(size: int | str | Dim) -> Size:
    if isinstance(size, str):
        return parse_size(size)
    return size if isinstance(size, Dim) else int(size)


def _declared(var: VarDesc, stem: str) -> Shape:
    if var.dims is None:
        raise CompileError(f"feed {var.name!r} has no declared shape; pass one in `feed`")
    return tuple(_axis(stem, axis, size) for axis, size in enumerate(var.dims))


def _axis(stem: str, axis: int, size: int) -> Size:
    """Return a declared size; an unknown one becomes a symbolic size."""
    if size >= 0:
        return size
    return Dim.named("N") if axis == 0 else _size_named(stem, str(axis))


def _size_named(stem: str, part: str) -> Dim:
    """Return a symbolic size of a variable; its name is a Python identifier."""
    return Dim.named(f"{stem}_{part}")


def _name(fetched: Any) -> str:
    return fetched if isinstance(fetched, str) else fetched.name
