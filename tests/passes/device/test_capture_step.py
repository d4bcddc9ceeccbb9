"""Which steps may be captured as CUDA graphs, and the reasons for the others."""

import numpy as np
import pytest

import compiler
import fluid
from compiler.driver import compile_graph, compile_stages
from compiler.options import Options
from tests.ops.compiled_samples import FIRST, NOBODY, graph_of, wanted
from tests.ops.test_generated import forward
from tests.ops.test_on_device import FORWARD

pytest.importorskip("triton")
pytest.importorskip("torch")

CAPTURED = "step.uploads = uploads"


def reasons(made):
    return [note for note in made.context.missed if note.name == "capture_step"]


@pytest.mark.device
def test_every_sample_is_captured_or_has_a_reason():
    """What the pass sees of the ops, and what the code does, agree."""
    actual = []
    for sample in (each for each in FORWARD if each is FIRST[each.op]):
        case = forward(sample)
        graph, _ = graph_of(case, wanted(case), NOBODY)
        created = compile_graph(graph, target="triton", options=Options())
        is_captured = CAPTURED in created.module.source
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


def test_the_uploads_of_a_step_are_its_feeds_and_keys():
    main, y, _ = program()
    options = Options()
    source = compiler.compile(main, feed=["x"], fetch=[y], target="triton", options=options).source
    assert "return (x, make_keys(generator, (-1,)),)" in source


def test_constants_are_copied_to_the_device_once():
    main, y, _ = program()
    created = compile_stages(main, feed=["x"], fetch=[y], target="triton", options=Options())
    bind, _, step = created.module.source.partition("def step(")
    assert reasons(created) == []
    assert "uploaded(take, " in bind
    assert "constants" not in step


def test_the_report_has_the_reasons():
    main, y, count = program()
    options = Options()
    created = compile_stages(main, feed=["x"], fetch=[y, count], target="triton", options=options)
    assert {reason.reason for reason in reasons(created)} == {"it runs on the host"}
    assert CAPTURED not in created.module.source
    assert "capture_step" in str(compiler.explain(created.module))


def test_it_is_an_option():
    main, y, _ = program()
    assert Options.from_env({}).cuda_graph
    assert not Options.from_env({"FLUID_CUDA_GRAPH": "0"}).cuda_graph
    for options in (Options(cuda_graph=False), Options(check=1)):
        module = compiler.compile(main, feed=["x"], fetch=[y], target="triton", options=options)
        assert CAPTURED not in module.source
    module = compiler.compile(main, feed=["x"], fetch=[y], options=Options())
    assert CAPTURED not in module.source
