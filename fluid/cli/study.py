"""One compilation under watch: what each pass did, and what memory the result takes.

The command line compiles a program once more with this and prints or draws what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from textwrap import fill

from compiler.codegen.module import Module, lives_of
from compiler.driver import Compiled, compile_stages
from compiler.errors import CompileError
from compiler.ir.dims import evaluate
from compiler.ir.draw import Bar, Stage, html, size_text
from compiler.ir.program import Program
from compiler.ir.types import Array, Shape
from compiler.options import Options
from compiler.pack import Life, Packing, pack
from compiler.passes.base import Refusal
from compiler.passes.observers import Recorder
from compiler.plan import Place, Plan
from fluid.cli.table import table


@dataclass(frozen=True)
class Memory:
    """Bytes of a step's temporaries at one set of sizes.

    `temporaries` is what they take without sharing, in the program as it was written; `largest` the
    most that is alive at one step of the finished plan, below which no packing goes; `arena` what
    the plan was packed into. The last two also hold what kernels need besides, as convolutions do.
    """

    temporaries: int
    largest: int
    arena: int


@dataclass(frozen=True)
class Study:
    """What was seen of one compilation.

    `kernels` is their number at first and after each pass; `sizes` are the numbers that unknown
    sizes stood for; `params` the arrays that were lent, with the folded weights that the module
    needs.
    """

    title: str
    compiled: Compiled
    stages: tuple[Stage, ...]
    kernels: tuple[int, ...]
    sizes: Mapping[str, int]
    memory: Memory
    packing: Packing
    params: MutableMapping[str, Array]

    @property
    def module(self) -> Module:
        """The generated module."""
        return self.compiled.module

    def html(self, summary: Mapping[str, str]) -> str:
        """A page with every pass, the arena and the module; `summary` stays in sight."""
        memory = {
            "temporaries": size_text(self.memory.temporaries),
            "largest live set": size_text(self.memory.largest),
            "arena": size_text(self.memory.arena),
        }
        bars = list(_bars(self.compiled.plan, self.module, self.packing, self.sizes))
        summary = {**summary, **memory}
        source = self.module.source
        return html(self.stages, title=self.title, summary=summary, bars=bars, source=source)


def study(
    title: str,
    program: Program,
    feed: Mapping[str, Shape] | Sequence[str],
    fetch: Sequence[str],
    sizes: Mapping[str, int],
    *,
    params: MutableMapping[str, Array] | None = None,
    options: Options | None = None,
    dump: Path | None = None,
) -> Study:
    """Compile a program under watch; names of unknown sizes stand for the numbers in `sizes`.

    The other arguments, and what is raised, as for `compiler.compile`; CompileError also for a
    size that is not among them or makes no sense to the program.
    """
    recorder = Recorder()
    compiled = compile_stages(
        program, feed=feed, fetch=fetch, params=params, options=options, dump=dump,
        observers=[recorder],
    )  # fmt: skip
    sizes = _known(sizes, compiled.plan.dims)
    stages = (replace(s, nbytes=evaluate(s.nbytes or 0, sizes)) for s in recorder.stages)
    temporaries = evaluate(recorder.nbytes, sizes)
    packing = pack(_lives(compiled.module, sizes))
    return Study(
        title=title,
        compiled=compiled,
        stages=tuple(stages),
        kernels=tuple(recorder.kernels),
        sizes=sizes,
        memory=Memory(temporaries, packing.bound, packing.height),
        packing=packing,
        params={} if params is None else params,
    )


def _known(sizes: Mapping[str, int], dims: Sequence[str]) -> dict[str, int]:
    for name in dims:
        if name not in sizes:
            raise CompileError(f"size {name!r} of the feeds is not known", hint="give it a number")
    return {name: sizes[name] for name in dims}


def _lives(module: Module, sizes: Mapping[str, int]) -> list[Life]:
    found = lives_of(module.buffers, sizes)
    for life in found:
        if life.size < 0:
            raise CompileError(
                f"a buffer would have {life.size} bytes for the sizes {dict(sizes)}",
                hint="the program needs larger inputs",
            )
    return found


def _bars(plan: Plan, module: Module, packing: Packing, sizes: Mapping[str, int]) -> Iterator[Bar]:
    """The buffers where they lie, named after the first value they hold."""
    names: dict[str | int, str] = {}
    for step in plan.steps:
        for value in (v for op in step.ops for vs in op.outputs.values() for v in vs):
            if value.place is Place.BUFFER:
                names.setdefault(value.home, value.label)
    pairs = zip(module.buffers, packing.offsets, strict=True)
    for index, (buffer, offset) in enumerate(pairs):
        nbytes = evaluate(buffer.nbytes, sizes)
        yield Bar(names.get(index, buffer.name), offset, nbytes, buffer.start, buffer.stop)


# ---- as text ------------------------------------------------------------------------------------


def pass_table(seen: Study) -> str:
    """Milliseconds, ops, kernels, bytes of temporaries after it, and refusals of each pass.

    Below stands why something was refused.
    """
    rows = [("pass", "ms", "ops", "kernels", "temporaries", "refused")]
    first, last = seen.stages[0], seen.stages[-1]
    written = (first.ops_before, seen.kernels[0], size_text(seen.memory.temporaries))
    rows.append(("(as written)", "", *map(str, written), ""))
    rows += map(_pass_row, seen.stages, pairwise(seen.kernels))
    spent = sum(stage.milliseconds for stage in seen.stages)
    whole = Stage("all", "", "", spent, first.ops_before, last.ops_after, (), last.nbytes)
    rows.append(_pass_row(whole, (seen.kernels[0], seen.kernels[-1])))
    lines = refusal_lines(seen.compiled.context.refusals)
    wrapped = [fill(line, 96, initial_indent="  ", subsequent_indent="    ") for line in lines]
    return "\n".join([table(rows), *wrapped])


def _pass_row(stage: Stage, kernels: tuple[int, int]) -> tuple[str, ...]:
    changes = (stage.ops_before, stage.ops_after), kernels
    ops, merged = (f"{a} → {b}" if a != b else str(b) for a, b in changes)
    refused = str(len(stage.refusals) or "")
    milliseconds = f"{stage.milliseconds:.1f}"
    return stage.name, milliseconds, ops, merged, size_text(stage.nbytes), refused


def refusal_lines(refusals: Sequence[Refusal]) -> list[str]:
    """A line for each reason: the pass, the first op it left as it was, how many more, and why.

    >>> refusal_lines([Refusal("fuse", "y = relu(x)", "a.py:3", "too late")])
    ['fuse declined relu (a.py:3): too late']
    """
    groups: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault((refusal.name, refusal.reason), []).append(refusal)
    return [_refused(group) for group in groups.values()]


def _refused(group: Sequence[Refusal]) -> str:
    first = group[0]
    kind = first.op.partition(" = ")[2].partition("(")[0]
    where = f" ({first.source})" if first.source else ""
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{first.name} declined {kind}{where}{more}: {first.reason}"


def memory_table(rows: Mapping[str, Memory]) -> str:
    """Temporaries, largest live set and arena, a row for each program."""
    cells = [("", "temporaries", "largest live set", "arena", "arena ÷ live")]
    for name, memory in rows.items():
        ratio = memory.arena / memory.largest if memory.largest else 1.0
        sizes = (memory.temporaries, memory.largest, memory.arena)
        cells.append((name, *map(size_text, sizes), f"{ratio:.3f}"))
    return table(cells)
