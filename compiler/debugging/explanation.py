"""Explanation of a compilation: what each pass did, the memory of the result, and an HTML page.

`study` compiles a program and records every stage. `explain` requires only a module: its record
contains the initial graph, and the same graph and options produce the same stages, so that a module
from a cache is explained just like one compiled in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from compiler.codegen.module import Module, buffer_lifetimes
from compiler.cost.gpu_limits import Gpu
from compiler.cost.native_steps import native_steps
from compiler.cost.plan_cost import PlanCost
from compiler.cost.stage_costs import costs_by_stage
from compiler.driver import TARGETS, Compiled, compile_graph, feed_shapes
from compiler.errors import CompileError
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph
from compiler.ir.program import Program
from compiler.ir.text.parser import parse
from compiler.ir.types import Array, Shape
from compiler.options import Options
from compiler.pack import Lifetime, Packing, pack
from compiler.passes.observers import Recorder
from compiler.record import Stage
from compiler.report.kernel_lines import kernels
from compiler.report.memory import MemoryUse, bars, size_text
from compiler.report.native_code import CpuLimits, NativeReport
from compiler.report.page import Report, html
from compiler.report.roofline import Roofline
from compiler.report.tables import memory_table, pass_table
from compiler.report.user_lines import Sources
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass
from compiler.support.escape import one_line
from compiler.support.text_files import write_text


@dataclass(frozen=True)
class Study:
    """A recorded compilation.

    `stages` are the graph before the first and after each pass; `sizes` the values of symbolic
    sizes; `params` the arrays passed in, plus the folded weights that the module requires;
    `sources` finds the users' source lines.
    """

    title: str
    compiled: Compiled
    stages: tuple[Stage, ...]
    sizes: Mapping[str, int]
    params: MutableMapping[str, Array] = field(default_factory=dict[str, Array])
    sources: Sources = field(default_factory=Sources)

    @property
    def module(self) -> Module:
        """The generated module."""
        return self.compiled.module

    @cached_property
    def packing(self) -> Packing:
        """Offsets of the buffers."""
        return pack(_lives(self.module, self.sizes))

    @cached_property
    def memory(self) -> MemoryUse:
        """Memory of the temporaries."""
        packing = self.packing
        return MemoryUse(evaluate(self.stages[0].nbytes, self.sizes), packing.bound, packing.height)

    @cached_property
    def accounts(self) -> list[PlanCost]:
        """Cost of each stage on the target it was compiled for."""
        record = self.module.record
        options = None if record is None else record.options
        return costs_by_stage(self.stages, self.sizes, TARGETS[self.module.target], options)

    def roofline(self, gpu: Gpu) -> Roofline:
        """Return the cost of each stage compared with the limits of a GPU."""
        names = [stage.name for stage in self.stages]
        return Roofline(gpu, list(zip(names, self.accounts, strict=True)), self.sizes)

    def native(
        self,
        seconds: Mapping[tuple[str, ...], float] | None = None,
        limits: CpuLimits | None = None,
        assembly: Mapping[str, str] | None = None,
    ) -> NativeReport:
        """Return the kernels of native code by step, and the ops in NumPy with the reason.

        `seconds` are measured times by the ops of a step, `limits` those of the CPU they were
        measured on, `assembly` that of kernels by name. The module must be native.
        """
        module, missed = self.module, self.compiled.context.missed
        reasons = {note.outputs: note.reason for note in missed if note.name == "assign_targets"}
        steps = native_steps(self.compiled.plan, self.sizes, module.machine, reasons)
        timed = [
            replace(step, seconds=(seconds or {}).get(tuple(map(one_line, step.ops))))
            for step in steps
        ]
        return NativeReport(module.machine, timed, module.kernels_ir, assembly or {}, limits)

    def html(
        self,
        facts: Mapping[str, str] | None = None,
        sources: Sources | None = None,
        gpu: Gpu | None = None,
        native: NativeReport | None = None,
    ) -> str:
        """Return an HTML page with every pass, the graph, the arena and the module.

        `facts` are shown in the header. `sources` finds the users' source lines, shown next to
        their ops; by default those of the study. With a `gpu` the page has the cost of every pass
        on it; with `native` the kernels of each step.
        """
        sizes = {name: str(number) for name, number in self.sizes.items()}
        source = self.module.source
        report = Report(
            title=self.title,
            stages=self.stages,
            facts={**(facts or {}), **sizes, "arena": size_text(self.memory.arena)},
            sizes=self.sizes,
            bars=bars(self.compiled.plan, self.module.buffers, self.packing, self.sizes),
            arena=self.memory.arena,
            source=source,
            kernels=kernels(source, self.compiled.plan.steps),
            sources=sources or self.sources,
            roofline=None if gpu is None else self.roofline(gpu),
            native=native,
        )
        return html(report)

    def save(self, path: str | Path, sources: Sources | None = None) -> None:
        """Write the page to a file."""
        write_text(Path(path), self.html(sources=sources))

    def __str__(self) -> str:
        """Return the passes and the memory as text tables."""
        passes = pass_table(self.stages, self.sizes)
        why = f"\n  the arena is {self.packing.note}" if self.packing.note else ""
        return f"{self.title}\n\n{passes}\n\n{memory_table({'memory': self.memory})}{why}"


def study(
    title: str,
    program: Program,
    feed: Mapping[str, Shape] | Sequence[str],
    fetch: Sequence[str],
    sizes: Mapping[str, int],
    *,
    target: str = "numpy",
    params: MutableMapping[str, Array] | None = None,
    options: Options | None = None,
    dump: Path | None = None,
) -> Study:
    """Compile a program and record every stage; `sizes` are the values of symbolic sizes.

    The other arguments and errors are those of `compiler.compile`; raises CompileError also for a
    missing size, or one that is invalid for the program.
    """
    graph = to_graph(program, feed_shapes(program, feed), list(fetch))
    return study_graph(
        title, graph, sizes, target=target, params=params, options=options, dump=dump,
        like=program,
    )  # fmt: skip


def study_graph(
    title: str,
    graph: Graph,
    sizes: Mapping[str, int],
    *,
    target: str = "numpy",
    params: MutableMapping[str, Array] | None = None,
    options: Options | None = None,
    dump: Path | None = None,
    like: Program | None = None,
    watch_state: bool = False,
) -> Study:
    """Compile a graph, modifying it, and record every stage; arguments and errors as for
    `study`.
    """
    recorder = Recorder()
    compiled = compile_graph(
        graph, target=target, params=params, options=options, dump=dump, observers=[recorder],
        like=like, watch_state=watch_state,
    )  # fmt: skip
    size_values = _known(sizes, compiled.plan.dims)
    _lives(compiled.module, size_values)
    return Study(
        title, compiled, tuple(recorder.stages), size_values, {} if params is None else params
    )


def explain(
    module: Module,
    sizes: Mapping[str, int] | None = None,
    *,
    title: str = "",
    params: MutableMapping[str, Array] | None = None,
    folders: Sequence[Path] = (),
) -> Study:
    """Return what the passes did when a module was compiled, with their original times.

    `sizes` are values of its symbolic sizes, by default `Options.typical`; `params` are the arrays
    that were passed in when it was compiled; `folders` contain the scripts whose lines a page
    shows. Raises CompileError for a module without a record, or one that its record no longer
    reproduces.
    """
    record = module.record
    if record is None:
        raise CompileError(
            f"module {module.name!r} has no record of its compilation",
            hint="compile its program again",
        )
    size_values = {**dict.fromkeys(module.dims, record.options.typical), **(sizes or {})}
    graph = parse(record.start, f"the record of {module.name}")
    title = title or f"{module.name}: {len(graph)} ops"
    options = replace(record.options, dump=None)
    recompiled = study_graph(
        title, graph, size_values, target=record.target, params=params, options=options,
        watch_state=record.watch_state,
    )  # fmt: skip
    if recompiled.module.digest != module.digest:
        raise CompileError(
            f"module {module.name!r} is not what its graph compiles to now",
            hint="it was edited, or compiled with other parameters",
        )
    spent = record.milliseconds
    stages = (replace(s, milliseconds=spent.get(s.name, 0.0)) for s in recompiled.stages)
    return replace(recompiled, stages=tuple(stages), sources=Sources(folders))


def _known(sizes: Mapping[str, int], dims: Sequence[str]) -> dict[str, int]:
    for name in dims:
        if name not in sizes:
            raise CompileError(
                f"size {name!r} of the feeds is unknown", hint="pass its value in `sizes`"
            )
    return {name: sizes[name] for name in dims}


def _lives(module: Module, sizes: Mapping[str, int]) -> list[Lifetime]:
    lifetimes = buffer_lifetimes(module.buffers, sizes)
    for life in lifetimes:
        if life.size < 0:
            raise CompileError(
                f"a buffer has {life.size} bytes for the sizes {dict(sizes)}",
                hint="the program requires larger inputs",
            )
    return lifetimes
