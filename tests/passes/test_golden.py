"""What each pass does to a graph, as text: first half in, dashed line, second half out.

The numbers come first: both halves are interpreted on the same made-up feeds and state, and a
golden file is refused, or not written by `--update`, if one moved.
"""

from pathlib import Path

import numpy as np
import pytest

from compiler.driver import TARGETS
from compiler.interpret import run
from compiler.ir.text.printer import parse, show
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.observers import made_up
from compiler.passes.pipeline import OPTIONAL, named

FOLDER = Path(__file__).parent / "golden"
DASHES = "-" * 80
PASS = {pass_.name: pass_ for pass_ in OPTIONAL}


def parts(path):
    """The header, the graph before, and the rest of a golden file."""
    header, _, body = path.read_text().partition("\n")
    before, _, after = body.partition(DASHES + "\n")
    return header, before, after


def names_in(header):
    """The passes a header names."""
    return header.removeprefix("// run:").split("//")[0].replace(",", " ").split()


def rewritten(header, before):
    """Run the passes a header names; returns graphs, context and the text of what came out."""
    names = names_in(header)
    graph = parse(before)
    params = {var.name: made_up(var.type, i) for i, var in enumerate(graph.params())}
    budget = header.partition("// budget ")[2] or None
    tiles = header.partition("// tiles ")[2].replace(";", "\n")
    context = Context(None if "no params" in header else dict(params), memory_budget=budget)
    run_passes(graph, _on_a_gpu(names, tiles) if tiles else named(names), context)
    misses = "".join(f"// {note.op}: {note.reason}\n" for note in context.missed)
    return graph, params | dict(context.params or {}), misses + show(graph)


def _on_a_gpu(names, tiles):
    """Passes for a GPU on which just these tiles were measured."""
    options = Options(gpu="cuda:75", tiles=tiles)
    return [PASS[name].configure(options, TARGETS["triton"]) for name in names]


def numbers(graph, params):
    feed = {var.name: made_up(var.type, 7 + i) for i, var in enumerate(graph.feeds())}
    state = {name: np.array(array) for name, array in params.items()}
    results = run(graph, feed, state)
    return [
        *results,
        *(state[var.name] for var in parse(show(graph)).params() if var.name in state),
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ir")), ids=lambda path: path.stem)
def test_pass_makes_this_of_that(path, update):
    header, before, after = parts(path)
    graph, params, text = rewritten(header, before)
    first = parse(before)
    old, new = numbers(first, params), numbers(graph, params)
    far = 1e-6 if all(PASS[name].preserves for name in names_in(header)) else 2e-3
    for a, b in zip(old[: len(first.results)], new, strict=False):
        np.testing.assert_allclose(a, b, rtol=10 * far, atol=far)
    if update:
        path.write_text(f"{header}\n{before}{DASHES}\n{text}")
        return
    assert text == after


def test_there_are_golden_files_for_every_pass():
    headers = " ".join(parts(path)[0] for path in FOLDER.glob("*.ir"))
    assert [pass_.name for pass_ in OPTIONAL if pass_.name not in headers] == []
