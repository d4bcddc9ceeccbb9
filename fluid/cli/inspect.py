"""`fluid inspect`: what is in a saved model, and what each pass makes of it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from compiler.driver import feed_shapes
from compiler.ir.dims import Dim
from compiler.ir.draw import size_text
from compiler.options import Options
from fluid.cli.model import CommandError, SavedModel, load_model, shape_text
from fluid.cli.study import Study, memory_table, pass_table, study
from fluid.cli.table import count, table

LISTED = 20
"""Parameters listed by name; of more, the largest."""


def inspect(given: argparse.Namespace) -> int:
    """Print what a model holds and what the passes did; write the report and dumps asked for."""
    model = load_model(given.model_dir, given.model_filename, given.params_filename)
    print(_contents(model))
    seen = _study(model, dict(given.size), given.dump)
    print(_compilation(seen))
    if given.html:
        given.html.write_text(seen.html(_summary(model)), encoding="utf-8")
        print(f"\nreport   {given.html}")
    if given.dump:
        name = seen.compiled.plan.name
        print(f"\ndumps    {given.dump}: the graph after each pass, {name}.plan and {name}.py")
    return 0


def size(text: str) -> tuple[str, int]:
    """What `--size NAME=NUMBER` stands for; ArgumentTypeError for anything else.

    >>> size("N=8")
    ('N', 8)
    """
    name, _, number = text.partition("=")
    if not name or not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER, like N=8")
    return name, int(number)


def _study(model: SavedModel, sizes: Mapping[str, int], dump: Path | None) -> Study:
    """The model compiled under watch; sizes that nobody gave are `Options.typical`."""
    feed = [var.name for var in model.feeds]
    shapes = feed_shapes(model.program, feed).values()
    known = {n for shape in shapes for each in shape if isinstance(each, Dim) for n in each.names}
    for name in sizes:
        if name not in known:
            open_sizes = ", ".join(sorted(known)) or "none"
            raise CommandError(f"the model has no open size {name!r}; it has: {open_sizes}")
    sizes = {**dict.fromkeys(known, Options.typical), **sizes}
    return study(
        f"{model.path.parent.name}: {count(len(_ops(model)), 'op')}",
        model.program, feed, model.fetch_names, sizes, params=dict(model.params), dump=dump,
    )  # fmt: skip


def _ops(model: SavedModel) -> list[str]:
    """The kinds of its ops, without those that only carry feeds and fetches."""
    kinds = (op.type for block in model.program.blocks for op in block.ops)
    return [kind for kind in kinds if kind not in ("feed", "fetch")]


def _contents(model: SavedModel) -> str:
    """Ops, feeds, fetches and parameters."""
    kinds = Counter(_ops(model))
    ops = ", ".join(f"{kind} × {times}" if times > 1 else kind for kind, times in kinds.items())
    edges = [("feed", var.name, shape_text(var)) for var in model.feeds]
    edges += [("fetch", var.name, shape_text(var)) for var in model.fetches]
    return "\n".join([
        f"{model.path}: {count(kinds.total(), 'op')}, {_params_text(model)}",
        "",
        fill(ops, 96, initial_indent="  ", subsequent_indent="  "),
        "",
        table(edges, left=3),
        "",
        _parameters(model),
    ])  # fmt: skip


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
    return f"\n{pass_table(seen)}\n\n{memory}"


def _summary(model: SavedModel) -> dict[str, str]:
    return {
        "model": str(model.path.parent),
        "feeds": ", ".join(f"{var.name} {shape_text(var)}" for var in model.feeds),
        "fetches": ", ".join(f"{var.name} {shape_text(var)}" for var in model.fetches),
        "parameters": _params_text(model),
    }
