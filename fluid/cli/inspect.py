"""`fluid inspect`: the contents of a model or program, and the effect of each pass on it."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import Protocol

from compiler.cost.gpu_limits import GPUS, Gpu
from compiler.debugging.explanation import Study, study_graph
from compiler.driver import TARGETS
from compiler.ir.graph import Graph
from compiler.options import NARROW, Options
from compiler.passes.pipeline import left_out
from compiler.report.memory import size_text
from compiler.report.native_code import NativeReport
from compiler.report.table import count, table
from compiler.report.tables import memory_table, pass_table
from compiler.report.user_lines import Sources
from compiler.support.escape import one_line
from compiler.support.text_files import write_text
from fluid.cli.model import CommandError, SavedModel, shape_text
from fluid.cli.profiling.native import native_report, write_kernels
from fluid.cli.subcommands import Subcommands
from fluid.cli.subject import Subject, add_pass_choice, add_subject, kinds, subject
from runtime.gpu.drivers import ptx_machine
from runtime.profiler import Span, trace

LISTED = 20
"""Number of parameters listed by name; if there are more, the largest are listed."""

INSPECT = """\
Show the ops, feeds, fetches and parameters of a saved model, and the effect of each compiler pass.
Accepts models saved by Paddle 1.x, training programs, and graphs in the compiler's text format.
"""
INSPECT_EXAMPLES = """\
examples:
  fluid inspect out/demo/model
  fluid inspect out/demo/model --html report.html     every pass, the graph, the memory, the code
  fluid inspect out/demo/model --dump stages          stages/00-start.ir, ..., main.plan, main.py
  fluid inspect train.pdmodel --html report.html      a training program; its loss is fetched
  fluid inspect out/demo/train/11-eliminate_dead.ir --only fuse_pointwise
  fluid inspect out/demo/model --roofline h200        bytes and minimum time of kernels, per pass
  fluid inspect out/demo/model --roofline h200 --counters --batch 8     what they fetch (checkout)
  fluid inspect out/demo/model --profile --batch 64   native code: times against this CPU's limits
  fluid inspect out/demo/model --target native --html report.html     LLVM IR, assembly, cost
  fluid inspect DIR --roofline h200 --batch 256 --dtype bf16 --json account.json
  fluid inspect DIR --model-filename model --params-filename params
"""


class KernelCounters(Protocol):
    """What the PTX machine counts in a kernel."""

    def data(self) -> object:
        """The counts as plain data."""
        ...


def add_inspect(commands: Subcommands) -> None:
    """Add `inspect` to the subcommands."""
    command = commands.add_parser(
        "inspect",
        help="show a model or program, and the effect of each compiler pass",
        description=INSPECT,
        epilog=INSPECT_EXAMPLES,
    )
    command.set_defaults(command=inspect)
    add_subject(command)
    add = command.add_argument
    add("--size", type=size, action="append", default=[], metavar="NAME=NUMBER",
        help=f"value of a dynamic dim (default: {Options.typical})")  # fmt: skip
    add("--batch", type=positive, metavar="N", help="batch size, the same as --size N=NUMBER")
    add("--target", choices=list(TARGETS),
        help="code to generate (default: numpy; triton with --roofline, native with --profile)",
    )  # fmt: skip
    add("--dtype", choices=["fp32", *NARROW],
        help="dtype of matrix products, for inference (default: fp32)")  # fmt: skip
    add_pass_choice(command)
    add("--stop-after", metavar="PASS", help="skip the passes after this one")
    _add_reports(command)
    _add_measurements(command)


def _add_reports(command: argparse.ArgumentParser) -> None:
    """Add the files that `inspect` writes."""
    add = command.add_argument
    add("--html", type=Path, metavar="FILE", help="write an HTML report of all passes")
    add("--dump", type=Path, metavar="DIR",
        help="write the graph after every pass: .ir, .dot, __model__, a table")  # fmt: skip
    add("--trace", type=Path, metavar="FILE", help="write a Chrome trace of the passes")
    add("--sources", type=Path, action="append", default=[], metavar="DIR",
        help="folder of the scripts whose lines the report shows (default: .)")  # fmt: skip


def _add_measurements(command: argparse.ArgumentParser) -> None:
    """Add what `inspect` computes about the speed of the compiled code."""
    add = command.add_argument
    add("--profile", action="store_true",
        help="compile native code, run it on random inputs, and show the time of each step beside "
        "what this CPU reaches; with --html also the roofline as a picture")  # fmt: skip
    add("--chart", type=Path, metavar="FILE", help="write the roofline of --profile as an SVG file")
    add("--roofline", choices=sorted(GPUS), metavar="GPU",
        help=f"launches, bytes and minimum time per pass: {', '.join(sorted(GPUS))}")  # fmt: skip
    add("--counters", action="store_true",
        help="with --roofline: run a step on random inputs on the PTX machine, which needs no GPU, "
        "and show what its kernels fetch; slow: choose a small --batch")  # fmt: skip
    add("--json", type=Path, metavar="FILE",
        help="write the --roofline numbers as JSON (- for stdout)")  # fmt: skip


def inspect(given: argparse.Namespace) -> int:
    """Print the contents of a model and the effect of the passes; write the requested files."""
    start = time.perf_counter()
    options, gpu = _options(given), GPUS.get(given.roofline)
    if given.json and gpu is None:
        raise CommandError("--json requires --roofline with the name of a GPU")
    target = _target(given)
    model = subject(given.path, given.model_filename, given.params_filename, given.fetch)
    sizes = dict(given.size) | ({"N": given.batch} if given.batch else {})
    if gpu is not None and not given.counters:  # which are those of the PTX machine
        options = replace(options, gpu=gpu.target)
    seen = compiled(model, sizes, target, options, given.dump)
    counters: list[KernelCounters] = []
    if given.counters:
        counters = ptx_machine("inspection").gpu_counters(seen)
    if given.json == Path("-"):
        print(_json(seen, GPUS[given.roofline], counters))
        return 0
    print(_contents(model))
    print(_compilation(seen))
    if gpu is not None:
        print(f"\n{seen.roofline(gpu)}")
    if counters:
        print(f"\n{ptx_machine('inspection').counter_table(counters)}")
    if gpu is not None and given.json:
        write_text(given.json, _json(seen, gpu, counters) + "\n")
        print(f"\njson     {given.json}: the account of every pass and kernel")
    native = _native(seen, given) if target == "native" else None
    if given.html:
        page = seen.html(_summary(model), Sources(given.sources or [Path.cwd()]), gpu, native)
        write_text(given.html, page)
        spent = time.perf_counter() - start
        print(f"\nreport   {given.html}: {size_text(len(page.encode()))}, in {spent:.1f} s")
    if given.trace:
        write_text(given.trace, _trace(seen))
        print(f"\ntrace    {given.trace}: the passes, for ui.perfetto.dev or chrome://tracing")
    if given.dump:
        name = seen.compiled.plan.name
        print(f"\ndumps    {given.dump}: the graph after each pass, {name}.plan and {name}.py")
    return 0


def _native(seen: Study, given: argparse.Namespace) -> NativeReport:
    """Print the steps of native code; write the chart and the kernels that are asked for."""
    report = native_report(seen, given.profile, bool(given.html or given.dump))
    print(f"\n{report}")
    if given.chart:
        write_text(given.chart, report.chart())
        print(f"\nchart    {given.chart}: the steps below the roofline of this CPU")
    if given.dump:
        write_kernels(report, given.dump / "kernels")
    return report


def _target(given: argparse.Namespace) -> str:
    """The code to generate; raises CommandError for options that need another target."""
    if given.counters and (not given.roofline or given.target not in (None, "triton")):
        raise CommandError("--counters requires --roofline with the name of a GPU, and no --target")
    if given.chart and not given.profile:
        raise CommandError("--chart requires --profile, which measures the times in it")
    if given.profile and (given.target not in (None, "native") or given.roofline):
        raise CommandError("--profile is for native code: leave out --target and --roofline")
    if given.profile:
        return "native"
    return given.target or ("triton" if given.roofline else "numpy")


def _json(seen: Study, gpu: Gpu, counters: Sequence[KernelCounters]) -> str:
    """The account of every pass and kernel, and counters if there are any."""
    data = seen.roofline(gpu).data()
    if counters:
        data["counters"] = [counter.data() for counter in counters]
    return json.dumps(data, indent=1)


def _trace(seen: Study) -> str:
    """The passes as consecutive spans of a Chrome trace."""
    ends = list(accumulate(int(stage.milliseconds * 1e6) for stage in seen.stages))
    pairs = zip(seen.stages, [0, *ends], ends, strict=False)
    return trace((), [Span((stage.name,), start, stop) for stage, start, stop in pairs])


def size(text: str) -> tuple[str, int]:
    """Parse `--size NAME=NUMBER`; raises ArgumentTypeError for anything else.

    >>> size("N=8")
    ('N', 8)
    """
    name, _, number = text.partition("=")
    if not name or not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER, like N=8")
    return name, int(number)


def positive(text: str) -> int:
    """Parse a positive integer; raises ArgumentTypeError for anything else."""
    return size(f"N={text}")[1]


def _options(given: argparse.Namespace) -> Options:
    """The options of the environment, with the passes disabled that the command line disables."""
    options = Options.from_env()
    try:
        off = left_out([*options.disable, *given.disable], given.only, given.stop_after)
    except ValueError as error:
        raise CommandError(str(error)) from error
    dtype = given.dtype or options.dtype
    return replace(options, disable=off, dtype=dtype)


def compiled(
    found: Subject,
    sizes: Mapping[str, int],
    target: str,
    options: Options | None = None,
    dump: Path | None = None,
) -> Study:
    """Compile the graph and record each pass; unspecified dims are `Options.typical`.

    The options are those of the environment by default. Raises CommandError for an unknown dim.
    """
    options = options or Options.from_env()
    symbols = {name for var in found.graph.feeds() for name in var.type.names}
    for name in sizes:
        if name not in symbols:
            open_sizes = ", ".join(sorted(symbols)) or "none"
            raise CommandError(f"the model has no open size {name!r}; it has: {open_sizes}")
    sizes = {**dict.fromkeys(symbols, options.typical), **sizes}
    title = f"{found.path.resolve().name}: {count(len(kinds(found)), 'op')}"
    return study_graph(
        title, found.graph, sizes, params=dict(found.params) if found.params else None,
        options=options, dump=dump, like=found.program, target=target,
    )  # fmt: skip


def _contents(found: Subject) -> str:
    """Ops, feeds, fetches and parameters as text."""
    counts = Counter(kinds(found))
    pairs = ((one_line(kind), times) for kind, times in counts.items())
    ops = ", ".join(f"{kind} × {times}" if times > 1 else kind for kind, times in pairs)
    path = found.model.path if found.model else found.path
    state = _params_text(found.model) if found.model else _state_text(found.graph)
    parts = [
        f"{path}: {count(counts.total(), 'op')}, {state}",
        fill(ops, 96, initial_indent="  ", subsequent_indent="  "),
        table(_edges(found), left=3) if _edges(found) else "",
        _parameters(found.model) if found.model else "",
    ]
    return "\n\n".join(filter(None, parts))


def _edges(found: Subject) -> list[tuple[str, str, str]]:
    """The feeds and fetches, with types."""
    if found.model is None:
        graph = found.graph
        sides = [("feed", var) for var in graph.feeds()] + [("fetch", v) for v in graph.results]
        return [(side, var.name, str(var.type)) for side, var in sides]
    model = found.model
    sides = [("feed", name) for name in model.feeds] + [("fetch", name) for name in model.fetches]
    return [(side, var.name, shape_text(var)) for side, var in sides]


def _state_text(graph: Graph) -> str:
    """Number and bytes of a program's persistable variables."""
    sizes = [var.type.nbytes for var in graph.params()]
    nbytes = sum((extent for extent in sizes if isinstance(extent, int)), start=0)
    return f"{count(len(sizes), 'variable')} of state, {size_text(nbytes)}"


def _params_text(model: SavedModel) -> str:
    numbers = sum(array.size for array in model.params.values())
    nbytes = sum(array.nbytes for array in model.params.values())
    tensors = count(len(model.params), "parameter")
    return f"{tensors} with {count(numbers, 'number')}, {size_text(nbytes)}"


def _parameters(model: SavedModel) -> str:
    """Name, type and bytes of each parameter, or of the largest."""
    shown = list(model.params)
    if len(shown) > LISTED:
        shown = sorted(shown, key=lambda name: -model.params[name].nbytes)[:LISTED]
    rows = [("parameter", "type", "bytes")]
    for name in shown:
        array = model.params[name]
        rows.append((name, f"{array.dtype} {list(array.shape)}", size_text(array.nbytes)))
    left_out = len(model.params) - len(shown)
    more = f"\n  and {left_out} smaller ones" if left_out else ""
    return table(rows, left=2) + more


def _compilation(seen: Study) -> str:
    sizes = ", ".join(f"{name} = {number}" for name, number in seen.sizes.items())
    memory = memory_table({f"memory, {sizes}" if sizes else "memory": seen.memory})
    return f"\n{pass_table(seen.stages, seen.sizes)}\n\n{memory}"


def _summary(found: Subject) -> dict[str, str]:
    """The summary that stays visible at the top of the HTML page."""
    state = _params_text(found.model) if found.model else _state_text(found.graph)
    return {"from": found.path.name or str(found.path), "state": state}
