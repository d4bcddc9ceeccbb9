"""Text of graphs and programs: printed text parses back, and parse errors explain themselves."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import ParseError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.graph import Graph
from compiler.ir.model_format.program_desc import load_program
from compiler.ir.opdef import find
from compiler.ir.program import BlockRef, OpDesc, Program, VarDesc, VarKind
from compiler.ir.text.printer import digest, parse, parse_program, same, show, show_op
from compiler.ir.types import TOKEN, DType, TensorType
from compiler.support.limits import MAX_NESTED_BLOCKS
from tests.ir.random_graphs import graphs, random_graph

ROOT = Path(__file__).resolve().parents[2]
MODELS = sorted((ROOT / "tests" / "golden" / "inference").glob("*__combined/model"))

EXAMPLE = """\
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 3]
  param lr: f32[1]
  (Out=h: f32[N, 3] @s0) = mul(X=x, Y=w)  // train.py:12
  (Out=y: f32[N, 3] @s1) = scale(X=h) {'scale': 2.0} @k1 @numpy
  (Out=g: f32[4, 3]) = fill_constant() {'op_role': 1, 'shape': [4, 3], 'value': -0.5}
  (ParamOut=w#1: f32[4, 3] over w) = sgd(Param=w, Grad=g, LearningRate=lr)
  (Out="a b": f32[N, 3]) = sum(X=[y])
  return "a b", w#1
}
"""
PROGRAM = """\
program {
  block 0 {
    var x: f32[?, 13] {'stop_gradient': True}
    var c: bool[1]
    var feed: f32 {'kind': 'FEED_MINIBATCH', 'persistable': True}
    (Out=x) = feed(X=feed) {'col': 0}  // train.py:3
    (Out=[x], Scope=@EMPTY@) = conditional_block(Cond=[c], Input=[]) {'sub_block': block(1)}
  }
  block 1 (parent 0, forward 2) {
    var h: f32[?, 13] {'lod_level': 1}
    (Out=h) = relu(X=x)
    (Out=x) = scale(X=h) {'bias': 0.1, 'op_role_var': ['a', 'b']}
  }
}
"""


# ---- graphs ----


def test_example_reads_as_documented():
    g = parse(EXAMPLE)
    x, w, h, y = (g.find(name) for name in ("x", "w", "h", "y"))
    mul, scale, fill, sgd, total = g.ops()
    assert (x.role, w.role, h.role, h.slot, y.slot) == ("feed", "param", "temp", 0, 1)
    assert x.type == TensorType(DType.FP32, (Dim.named("N"), 4))
    assert (mul.source, mul["X"], mul["Y"], mul["Out"]) == ("train.py:12", x, w, h)
    assert (scale.defn.scale, scale.kernel, scale.target) == (2.0, 1, "numpy")
    assert fill.attrs == {"shape": [4, 3], "value": -0.5, "op_role": 1}
    after = g.find("w", 1)
    assert (after.overwrites, after.role, sgd["ParamOut"]) == (w, "param", after)
    assert [var.label for var in g.results] == ["a b", "w#1"]
    assert [op.position for op in g] == [(0,), (1,), (2,), (3,), (4,)]
    assert total["Out"].name == "a b"


def test_example_prints_as_it_was_read():
    assert show(parse(EXAMPLE)) == EXAMPLE


@given(graphs())
def test_parse_undoes_show(g: Graph):
    assert same(parse(show(g)), g)
    assert show(parse(show(g))) == show(g)


@given(st.integers(0, 2**32), st.integers(0, 12))
def test_same_graphs_print_the_same_bytes(seed: int, steps: int):
    first, second = (random_graph(random.Random(seed), steps, labels=True) for _ in range(2))
    assert show(first) == show(second)
    assert digest(first) == digest(second)


HASH_SEED_PROGRAM = """
import random
from compiler.ir.text.printer import show
from tests.ir.random_graphs import random_graph
for seed in range(8):
    print(show(random_graph(random.Random(seed), 12, labels=True)))
"""


def test_text_does_not_depend_on_the_hash_seed():
    outputs = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", HASH_SEED_PROGRAM]
        outputs.append(subprocess.check_output(command, env=environment))
    assert outputs[0] == outputs[1]
    assert b"graph" in outputs[0]


CHANGES = [
    ("graph main", "graph other"),
    ("@s0", "@s2"),
    ("@k1", "@k2"),
    ("@numpy", "@triton"),
    ("train.py:12", "train.py:13"),
    ("'scale': 2.0", "'scale': 2.5"),
    ("f32[1]", "f32[2]"),
    ("X=[y]", "X=[y, y]"),
    ("feed x", "param x"),
    (" over w", ""),
    ('return "a b", w#1', 'return w#1, "a b"'),
    ("'op_role': 1", "'op_role': 2"),
    ("  param w: f32[4, 3]\n  param lr: f32[1]\n", "  param lr: f32[1]\n  param w: f32[4, 3]\n"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_every_difference_counts(old: str, new: str):
    changed = EXAMPLE.replace(old, new, 1)
    assert changed != EXAMPLE
    assert not same(parse(changed), parse(EXAMPLE))
    assert digest(parse(changed)) != digest(parse(EXAMPLE))


def test_order_of_ops_counts():
    lines = EXAMPLE.splitlines(keepends=True)
    lines[5], lines[6] = lines[6], lines[5]
    assert not same(parse("".join(lines)), parse(EXAMPLE))


def test_defaults_do_not_count():
    said = EXAMPLE.replace("'scale': 2.0", "'scale': 2, 'bias': 0.0, 'op_role': 0, 'op_device': ''")
    assert same(parse(said), parse(EXAMPLE))
    assert show(parse(said)) == EXAMPLE


def test_bodies_count():
    text = "graph b {\n    feed x: f32[3]\n    (Out=y: f32[3]) = relu(X=x)\n    return y\n  }"
    outer = (
        "graph main {\n  feed c: bool[1]\n  feed x: f32[3]\n  (Written=[y: f32[3]]) = "
        f"if(Cond=[c], Captured=[x]) {text}\n  return y\n}}\n"
    )
    g = parse(outer)
    assert show(g) == outer
    assert [op.kind for op in g.ops()[0].body.ops()] == ["relu"]
    assert not same(g, parse(outer.replace("relu", "tanh")))
    sourced = outer.replace("graph b {", "graph b {  // train.py:9")
    assert parse(sourced).ops()[0].source == "train.py:9"
    assert show(parse(sourced)) == sourced


def test_comments_and_blank_lines_between_lines_are_passed_over():
    text = EXAMPLE.replace("\n  (", "\n\n  // a remark\n  (").replace("\n", "\r\n")
    assert same(parse("\n// run: nothing\n" + text + "\n// the end\n"), parse(EXAMPLE))


def test_broken_graphs_print_too():
    g = Graph()
    x, late, orphan = (
        g.var(name, TensorType(DType.FP32, (3,))) for name in ("x", "late", "orphan")
    )
    g.op("relu", {"X": [late]}, {"Out": [x]}, last=True)
    g.op("relu", {"X": [x]}, {"Out": [late]}, last=True)
    assert same(parse(show(g)), g)
    assert f"var {orphan}" in show(g)


def test_types_without_sizes():
    g = Graph()
    g.feed("scalar", TensorType(DType.INT64, ()))
    g.feed("unknown", TensorType(DType.FP16, (UNKNOWN, 2)))
    g.var("t0", TOKEN)
    assert show(g).splitlines()[1:4] == [
        "  feed scalar: i64[]",
        "  feed unknown: f16[?, 2]",
        "  var t0: token[]",
    ]
    assert same(parse(show(g)), g)


def test_a_target_that_looks_like_a_kernel_is_quoted():
    g = parse(EXAMPLE)
    g.ops()[0].target = "k1"
    assert '@"k1"' in show(g)
    assert same(parse(show(g)), g)


def test_printing_ten_thousand_ops_is_quick_and_linear():
    graphs = chain(2_500), chain(10_000)
    seconds = [min(timed(show, graph) for _ in range(3)) for graph in graphs]
    assert seconds[1] < 1.0
    assert seconds[1] < 8 * seconds[0] + 0.1


def chain(count: int) -> Graph:
    """A graph of `count` ops in a row."""
    type = TensorType(DType.FP32, (Dim.named("N"), 4))
    g = Graph()
    x = g.feed("x", type)
    for index in range(count):
        y = g.var(f"fc_{index}.tmp_0", type)
        g.op("scale", {"X": [x]}, {"Out": [y]}, {"scale": 0.5}, f"train.py:{index}", last=True)
        x = y
    g.results = [x]
    return g


def timed(function, *arguments) -> float:
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


# ---- programs ----


def test_program_reads_and_prints_as_documented():
    program = parse_program(PROGRAM)
    main, inner = program.blocks
    assert show(program) == PROGRAM
    assert (main.vars["x"].dims, main.vars["x"].stop_gradient) == ((-1, 13), True)
    assert (main.vars["feed"].dims, main.vars["feed"].kind) == (None, VarKind.FEED)
    assert (inner.parent_idx, inner.forward_block_idx, inner.vars["h"].lod_level) == (0, 2, 1)
    assert isinstance(main.ops[1].attrs["sub_block"], BlockRef)
    assert (main.ops[0].source, main.ops[1].inputs["Input"]) == ("train.py:3", [])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_saved_programs_come_back(path: Path):
    program = load_program(path.read_bytes())
    again = parse_program(show(program))
    assert show(again) == show(program)
    assert digest(again) == digest(program)
    for block, other in zip(program.blocks, again.blocks, strict=True):
        assert [fields(v) for v in block.vars.values()] == [fields(v) for v in other.vars.values()]
        assert [op.inputs for op in block.ops] == [op.inputs for op in other.ops]
        assert [op.outputs for op in block.ops] == [op.outputs for op in other.ops]
        assert [bound(op) for op in block.ops] == [bound(op) for op in other.ops]


def fields(var: VarDesc) -> dict:
    """What is declared of a variable; the reference also writes -6 for six times what is unknown."""
    dims = None if var.dims is None else tuple(max(size, -1) for size in var.dims)
    return vars(var) | {"dims": dims}


def bound(op: OpDesc) -> dict:
    """The attributes that mean something, with defaults filled in."""
    return find(op.type)(op.attrs).attributes


def test_all_fields_of_a_variable_come_back():
    program = Program()
    fields = {"shape": (-1, 3), "dtype": DType.INT64, "kind": VarKind.SELECTED_ROWS, "lod_level": 2}
    flags = dict.fromkeys(("persistable", "stop_gradient", "need_check_feed", "is_parameter"), True)
    program.blocks[0].add_var('a "name"', **fields, **flags)
    program.blocks[0].add_var("plain")
    again = parse_program(show(program)).blocks[0].vars
    assert {n: vars(v) for n, v in again.items()} == {
        n: vars(v) for n, v in program.blocks[0].vars.items()
    }


def test_a_program_with_an_unknown_op_prints_with_all_it_contains():
    program = Program()
    program.blocks[0].add_var("x", shape=(3,))
    program.blocks[0].add_op("gelu2", {"X": ["x"]}, {"Out": ["x"]}, {"axis": -1, "op_role": 0})
    assert "(Out=x) = gelu2(X=x) {'axis': -1}" in show(program)
    with pytest.raises(ParseError, match='Operator "gelu2" has not been registered'):
        parse_program(show(program))


def test_digest_distinguishes_programs():
    program, other = parse_program(PROGRAM), parse_program(PROGRAM.replace("13]", "14]"))
    assert len(digest(program)) == 64
    assert digest(program) == digest(parse_program(PROGRAM)) != digest(other)


# ---- lines ----


@given(st.text())
def test_source_lines_come_back(source: str):
    g = Graph()
    x = g.feed("x", TensorType(DType.FP32, (1,)))
    g.op("relu", {"X": [x]}, {"Out": [g.var("y", x.type)]}, source=source)
    assert parse(show(g)).ops()[0].source == source


def test_show_op_is_one_short_line():
    ops = parse(EXAMPLE).ops()
    assert show_op(ops[1]) == "(Out=y) = scale(X=h) {'scale': 2.0} @k1 @numpy"
    assert show_op(ops[4]) == '(Out="a b") = sum(X=[y])'
    assert show_op(parse_program(PROGRAM).blocks[1].ops[0]) == "(Out=h) = relu(X=x)"


# ---- errors ----


def test_an_error_points_at_its_place():
    with pytest.raises(ParseError) as caught:
        parse(EXAMPLE.replace("Y=w", "Y=ww"), "model.ir")
    assert str(caught.value).splitlines() == [
        "model.ir:5: 'ww' is used before it is declared",
        "    (Out=h: f32[N, 3] @s0) = mul(X=x, Y=ww)  // train.py:12",
        "                                        ^",
        "  hint: did you mean 'w'?",
    ]


def test_a_long_line_is_cut_around_the_place():
    wide = EXAMPLE.replace("X=[y]", "X=[" + "y, " * 5_000 + "z, " + "y, " * 5_000 + "y]")
    with pytest.raises(ParseError, match="'z' is used before") as caught:
        parse(wide)
    lines = str(caught.value).splitlines()
    assert max(map(len, lines)) < 250
    assert lines[1][lines[2].index("^")] == "z"


def nested(depth: int) -> str:
    lines = ["graph g {", "feed c: bool[1]"]
    for _ in range(depth - 1):
        lines += [
            "() = if(Cond=[c]) graph g {",
            "feed c: bool[1]",
        ]
    return "\n".join(lines + ["}"] * depth)


def test_nesting_is_limited():
    assert len(parse(nested(MAX_NESTED_BLOCKS))) == 1
    with pytest.raises(ParseError, match=f"graphs are nested more than {MAX_NESTED_BLOCKS} deep"):
        parse(nested(MAX_NESTED_BLOCKS + 1))
    with pytest.raises(ParseError, match="nested more than"):
        parse(nested(5_000))


def test_program_and_graph_are_not_taken_for_each_other():
    with pytest.raises(ParseError, match="expected 'graph', found 'program'"):
        parse(PROGRAM)
    with pytest.raises(ParseError, match="expected 'program', found 'graph'"):
        parse_program(EXAMPLE)


@given(st.data())
def test_damaged_text_is_rejected_or_reads_as_a_graph(data):
    """Nothing but ParseError comes out of a text with a few characters changed."""
    text = list(data.draw(st.sampled_from([EXAMPLE, PROGRAM])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(
            st.sampled_from(["", "\n", "(", "}", "[", "@", "#", '"', "'", "9", " "])
        )
    read = parse_program if "".join(text).startswith("p") else parse
    try:
        thing = read("".join(text))
    except ParseError:
        return
    assert show(read(show(thing))) == show(thing)
