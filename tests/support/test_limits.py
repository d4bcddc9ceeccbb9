"""Small files that once led to long runs: each is a typed error that names the limit, at once."""

import time
from typing import Any

import pytest

import fluid
from compiler.driver import compile_graph, compile_stages
from compiler.errors import CompileError, ParseError, ShapeError
from compiler.ir.dims import Dim, parse_size
from compiler.ir.model_format.program_desc import dump_program, load_program
from compiler.ir.program import BlockRef, Program, VarKind
from compiler.ir.text.parser import parse
from compiler.ir.types import DType
from compiler.support.limits import MAX_NESTED_BLOCKS, MAX_RANK, MAX_SIZE_DEPTH


def scaled(shape: str, attributes: str = "") -> str:
    """A graph of one op over values of a shape."""
    return (
        f"graph main {{\n  feed x: f32[{shape}]\n"
        f"  (Out=y: f32[{shape}]) = scale(X=x) {attributes}\n  return y\n}}\n"
    )


SIZES = {
    "axes": ("2," * 100_000 + "2", f"at most {MAX_RANK} sizes"),
    "product of sums": ("*".join(f"(a{i}+b{i})" for i in range(16)), "larger than 2048 symbols"),
    "power": ("*".join(["(a+b+c+d+e)"] * 30), "larger than 2048 symbols"),
    "degree": ("*".join(["(a+b)"] * 400), "larger than 2048 symbols"),
    "long sum": ("+".join(f"a{i}" for i in range(100_000)), "at most 8192 characters"),
    "quotients": ("(" * 60 + "N" + "+1)//2" * 60, "48 nested floor divisions"),
    "brackets": ("(" * 3000 + "N" + ")" * 3000, "is not a size"),
    "digits": ("9" * 4000, "at most 63 bits"),
    "product of numbers": ("*".join(["999999999"] * 500), "at most 63 bits"),
}


@pytest.mark.parametrize(("shape", "message"), SIZES.values(), ids=SIZES)
def test_a_size_beyond_a_limit_is_rejected_at_once(shape: str, message: str) -> None:
    start = time.process_time()
    with pytest.raises(ParseError) as caught:
        parse(scaled(shape))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.process_time() - start < 5


def test_an_expression_within_the_limits_is_read_back_fast() -> None:
    start = time.process_time()
    nested = parse_size("(" * MAX_SIZE_DEPTH + "N" + "+1)//2" * MAX_SIZE_DEPTH)
    assert parse_size(str(nested)) == nested
    compile_graph(parse(scaled(str(nested))))
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("grown", "message"),
    [
        (lambda size: (size + 1) // 2, "49 nested floor divisions"),
        (lambda size: (size + 1) // 2 + (size + 1) // 3, "symbols"),
        (lambda size: size * size + Dim.named("M"), "symbols"),
    ],
)
def test_arithmetic_of_sizes_ends_at_the_limit(grown: Any, message: str) -> None:
    size = Dim.named("N")
    with pytest.raises(ShapeError, match=message):
        for _ in range(MAX_SIZE_DEPTH + 1):
            size = grown(size)


@pytest.mark.parametrize("number", ["9" * 40, "-" + "9" * 40, f"[{'9' * 40}]"])
def test_an_integer_beyond_64_bits_is_no_attribute(number: str) -> None:
    with pytest.raises(ParseError, match="more than 64 bits"):
        parse(scaled("4", f"{{'scale': {number}}}"))


def nested(depth: int, kind: str) -> Program:
    """A program whose blocks lie inside each other, `depth` of them with the main one."""
    program = Program()
    block = program.blocks[0]
    block.add_var("c", shape=[1], dtype=DType.BOOL)
    block.add_var("x", shape=[1], dtype=DType.FP32)
    block.add_var("s", kind=VarKind.STEP_SCOPES)
    slots: dict[str, tuple[str, str, str]] = {
        "while": ("Condition", "X", "StepScopes"),
        "conditional_block": ("Cond", "Input", "Scope"),
    }
    condition, read, scopes = slots[kind]
    for _ in range(depth - 1):
        inside = program.add_block(block.idx)
        block.add_op(
            kind, {condition: ["c"], read: ["x"]}, {"Out": ["x"], scopes: ["s"]},
            {"sub_block": BlockRef(inside.idx)},
        )  # fmt: skip
        block = inside
    block.add_op("scale", {"X": ["x"]}, {"Out": ["x"]}, {"scale": 2.0})
    return program


@pytest.mark.parametrize("kind", ["while", "conditional_block"])
def test_blocks_nest_up_to_the_limit(kind: str) -> None:
    program = load_program(dump_program(nested(MAX_NESTED_BLOCKS, kind)))
    module = compile_stages(program, feed={"x": (1,), "c": (1,)}, fetch=["x"]).module
    compile(module.source, "module", "exec")


@pytest.mark.parametrize("kind", ["while", "conditional_block"])
@pytest.mark.parametrize("depth", [MAX_NESTED_BLOCKS + 1, 400, 1500])
def test_blocks_beyond_the_limit_are_rejected(kind: str, depth: int) -> None:
    program = nested(depth, kind)
    with pytest.raises(CompileError, match=f"nests more than {MAX_NESTED_BLOCKS} blocks"):
        load_program(dump_program(program))
    with pytest.raises(CompileError, match=f"nests more than {MAX_NESTED_BLOCKS} blocks"):
        compile_stages(program, feed={"x": (1,), "c": (1,)}, fetch=["x"])


def test_a_saved_variable_has_at_most_nine_axes() -> None:
    program = Program()
    program.blocks[0].add_var("wide", shape=[1] * 100_000, dtype=DType.FP32)
    with pytest.raises(CompileError, match="'wide' has 100000 dims, more than 9"):
        load_program(dump_program(program))


def test_an_op_returns_at_most_nine_axes() -> None:
    with fluid.program_guard(fluid.Program()):
        x = fluid.layers.data("x", [1] * 9, append_batch_size=False)
        with pytest.raises(ShapeError, match="Out has 10 axes, more than 9"):
            fluid.layers.unsqueeze(x, [0])


def chain(count: int) -> str:
    """A graph of ops, each of which reads what the one before wrote."""
    ops = [f"  (Out=y{i + 1}: f32[4]) = relu(X=y{i})" for i in range(count)]
    return "\n".join(["graph main {", "  feed y0: f32[4]", *ops, f"  return y{count}", "}", ""])


def test_a_long_chain_of_ops_needs_no_deep_stack() -> None:
    module = compile_graph(parse(chain(1100))).module
    assert module.source.count("np.maximum") >= 1


def test_constants_that_double_are_not_computed_while_compiling() -> None:
    program = fluid.Program()
    with fluid.program_guard(program):
        value = fluid.layers.fill_constant([4], "float32", 1.0)
        for _ in range(36):
            value = fluid.layers.concat([value, value])
    start = time.process_time()
    module = compile_stages(program, fetch=[value]).module
    assert time.process_time() - start < 10
    assert max(int(buffer.nbytes) for buffer in module.buffers) >= 4 << 38
