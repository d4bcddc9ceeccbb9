"""Which parts of steps are captured as CUDA graphs, and the reasons for the others."""

import re

import numpy as np
import pytest

import compiler
import fluid
from compiler.codegen.triton.graph_segments import FixedLine, GraphSegments
from compiler.codegen.writer import Names, Writer
from compiler.driver import compile_graph, compile_stages
from compiler.options import Options
from compiler.support.thresholds import lowered
from tests.ops.compiled_samples import FIRST, NOBODY, graph_of
from tests.ops.test_generated import forward, with_elements
from tests.ops.test_on_device import FORWARD

pytest.importorskip("triton")
pytest.importorskip("torch")

GRAPH = "in graph_"


def reasons(made):
    return [note for note in made.context.missed if note.name == "capture_step"]


def host_lines(source):
    """The lines of a step that are in no graph, but for copies of feeds and results."""
    step = source.partition("    def step(")[2].partition("\n        return")[0]
    lines = [line for line in step.splitlines()[1:] if line[8] not in " #"]
    copies = re.compile(r" *(upload\(|download|\w+ = fetch\(|for .* in graph_)")
    return [line for line in lines if not copies.match(line)]


@pytest.mark.device
def test_every_sample_is_captured_or_has_a_reason():
    """What the pass sees of the ops, and what the code does, agree."""
    actual = []
    for sample in (each for each in FORWARD if each is FIRST[each.op]):
        case = forward(sample)
        graph, _ = graph_of(case, with_elements(case), NOBODY)
        with lowered({"captured_launches": 1}):
            created = compile_graph(graph, target="triton", options=Options())
        is_captured = not host_lines(created.module.source)
        assert is_captured is not bool(reasons(created)), sample.op
        actual.append(is_captured)
    assert sum(actual) > len(actual) * 3 / 4


def program():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [None, 4])
        order = fluid.layers.assign(np.arange(100) % 4)
        x = fluid.layers.transpose(
            fluid.layers.gather(fluid.layers.transpose(x, [1, 0]), order), [1, 0]
        )
        y = fluid.layers.softmax(fluid.layers.dropout(x, 0.5))
        count = fluid.layers.where(fluid.layers.reduce_sum(y, dim=1) > 1.0)
    return main, y, count


def source_of(*fetched, least=4, **options):
    main, y, count = program()
    fetch = [each for each, name in ((y, "y"), (count, "count")) if name in fetched]
    options = Options(**options)
    with lowered({"captured_launches": least}):
        return compile_stages(main, feed=["x"], fetch=fetch, target="triton", options=options)


def test_uploads_between_launches_are_arguments_of_the_graph():
    main, y, _ = program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        z = fluid.layers.elementwise_add(y, fluid.data("late", [None, 100]))
    created = compile_stages(main, feed=["x", "late"], fetch=[z], target="triton")
    _, _, step = created.module.source.partition("    def step(")
    before, begin, lines = step.partition("        for ")
    assert "upload(x_device, x)" in before and begin
    assert lines.startswith("(late_device_host,) in graph_1(late):\n")
    assert "            upload(late_device, late_device_host)\n" in lines


def test_short_runs_are_launched_one_by_one():
    assert GRAPH in source_of("y").module.source
    assert GRAPH not in source_of("y", least=40).module.source


def test_constants_are_copied_to_the_device_once():
    main, y, _ = program()
    created = compile_stages(main, feed=["x"], fetch=[y], target="triton", options=Options())
    bind, _, step = created.module.source.partition("def step(")
    assert reasons(created) == []
    assert "uploaded(take, " in bind
    assert "constants" not in step


def test_a_step_is_captured_between_ops_of_the_host():
    created = source_of("y", "count", least=1)
    step = created.module.source.partition("    def step(")[2]
    first, wait, rest = step.partition("        downloaded()\n")
    assert "in graph_1(" in first and "where_index_reference" not in first and wait
    assert "where_index_reference" in rest


def test_the_report_says_what_splits_a_step():
    created = source_of("y", "count")
    (reason,) = {note.reason for note in reasons(created)}
    text = r"it runs on the host, which splits the CUDA graph: \d kernels before it, \d after it"
    assert re.fullmatch(text, reason)
    assert "capture_step" in str(compiler.explain(created.module))


def test_graphs_have_no_lines_of_the_host_and_no_names_of_the_step():
    """Memory that a step allocates has another address each time."""
    body, setup = Writer(2), Writer(1)
    segments = GraphSegments(body, Names({"graph"}))
    body.line("t = take(None, 'float32', (n,))")
    for text in ("k[(1,)](x, t)", "k[(1,)](x, y)"):
        segments.line(text, FixedLine(is_launch=True))
    body.line("work(t)")
    segments.line("k[(1,)](y, z)", FixedLine(is_launch=True))
    with lowered({"captured_launches": 1}):
        segments.write(setup)
    assert body.lines[1:] == [
        "        k[(1,)](x, t)",
        "        for _ in graph_1():",
        "            k[(1,)](x, y)",
        "        work(t)",
        "        for _ in graph_2():",
        "            k[(1,)](y, z)",
    ]
    assert setup.lines == ["    graph_1 = graph()", "    graph_2 = graph()"]


def test_it_is_an_option():
    main, y, _ = program()
    assert Options.from_env({}).cuda_graph
    assert not Options.from_env({"FLUID_CUDA_GRAPH": "0"}).cuda_graph
    for options in (Options(cuda_graph=False), Options(check=1)):
        module = compiler.compile(main, feed=["x"], fetch=[y], target="triton", options=options)
        assert GRAPH not in module.source
    module = compiler.compile(main, feed=["x"], fetch=[y], options=Options())
    assert GRAPH not in module.source
