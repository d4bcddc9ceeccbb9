"""PTX text becomes kernels; hostile text becomes an error with its line."""

import pytest

from tests.tools.ptx.support import HEAD, kernel
from tools.ptx.errors import PtxSyntaxError, UnsupportedInstruction
from tools.ptx.flow import blocks_of, post_dominators
from tools.ptx.instructions import Address, Immediate, Not, Pair, Register, Vector
from tools.ptx.machine import translate
from tools.ptx.text.parser import parse


def only(text):
    (result,) = parse(text).values()
    return result


def test_a_kernel_has_its_parameters_sizes_and_instructions():
    text = HEAD + (
        ".extern .shared .align 16 .b8 smem[];\n"
        ".global .align 4 .b8 table[4] = {1, 2, 0x03, 4};\n"
        ".visible .entry k(.param .u64 .ptr .global .align 1 a, .param .f32 b)\n.reqntid 128\n"
        "{ .reg .b32 %r<3>; mov.u32 %r1, %tid.x; // comment\n ret; }"
    )
    result = only(text)
    assert [
        (parameter.name, parameter.type, parameter.nbytes) for parameter in result.parameters
    ] == [
        ("a", "u64", 8),
        ("b", "f32", 4),
    ]
    assert (result.name, result.target, result.required_threads) == ("k", "sm_80", (128, 1, 1))
    assert result.variables["table"].data == bytes([1, 2, 3, 4])
    assert result.variables["smem"].nbytes == 0
    assert [instruction.name for instruction in result.instructions] == ["mov.u32", "ret"]


def test_operands_keep_their_kinds():
    result = only(
        kernel(
            "@!%p1 ld.global.L1::evict_last.v2.b32 {%r1, _}, [%rd1 + -8];\nsetp.lt.s32 %p1|%p2, %r1, -5;"
        )
    )
    load, compare = result.instructions[3:5]
    assert isinstance(load.guard, Not)
    to, at = load.operands
    assert isinstance(to, Vector) and to.parts[1] is None
    assert isinstance(at, Address) and at.offset == -8
    assert load.modifiers == ("global", "L1::evict_last", "v2", "b32")
    assert isinstance(compare.operands[0], Pair) and compare.operands[2] == Immediate(-5)


def test_registers_of_a_scope_end_with_it():
    result = only(kernel("{ .reg .b32 t; mov.b32 t, 1; mov.b32 %r1, t; }"))
    inner = result.instructions[3].operands[0]
    assert isinstance(inner, Register) and inner.name == "t"
    with pytest.raises(PtxSyntaxError, match=r"PTX line 14.*'t'"):
        translate(only(kernel("{ .reg .b32 t; }\nmov.b32 t, 1;")))


def test_an_instruction_knows_the_line_of_its_source():
    body = (
        '.file 3 "kernels.py"\n.loc 3 7 2\nmov.u32 %r1, 1;\n.loc 3 9 1 // a.py:9:1\nmov.u32 %r1, 2;'
    )
    first, second = only(kernel(body)).instructions[3:5]
    assert (first.place, second.place) == ("kernels.py:7:2", "a.py:9:1")
    assert second.line == first.line + 2


def test_branch_sides_reconverge():
    body = "@%p1 bra $A;\nmov.u32 %r1, 1;\nbra.uni $B;\n$A: mov.u32 %r1, 2;\n$B: mov.u32 %r2, 3;"
    blocks = blocks_of(only(kernel(body)))
    assert [block.successors for block in blocks] == [(2, 1), (3,), (3,), ()]
    assert post_dominators(blocks) == ({3}, {3}, {3}, set())


def test_an_endless_loop_has_no_block_that_all_paths_pass():
    blocks = blocks_of(only(kernel("$A: mov.u32 %r1, 2;\nbra $A;")))
    assert post_dominators(blocks)[0] == frozenset()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "without .target"),
        (HEAD + ".entry k( {", "expected|unexpected"),
        (HEAD + ".entry k() { .reg .b32 %r<99999999>; ret; }", "too many"),
        (HEAD + ".entry k() { mov.u32 %r1, 1; ret; }", "neither a register nor a number"),
        (HEAD + ".entry k() { ret", "expected"),
        (HEAD + ".entry k() { ret; } .entry k() { ret; }", "two kernels"),
        (HEAD + "\x00", "unexpected"),
        (HEAD + ".entry k() { @%p1 ret; }", "not a predicate"),
        (HEAD + ".global .b8 x[2] = {1, 2, 3};", "3 bytes of values"),
        (HEAD + ".entry k() { L: L: ret; }", "two labels"),
        (HEAD + ".entry k() {" + "{" * 5000, "expected|unexpected|instruction"),
    ],
)
def test_hostile_text_is_refused(text, says):
    with pytest.raises(PtxSyntaxError, match=says):
        parse(text)


@pytest.mark.parametrize("body", ["bra $nowhere;", "bra 7;", "bra $end; $end:"])
def test_branches_to_nothing_are_refused(body):
    text = kernel(body).replace("ret;", "") if "$end" in body else kernel(body)
    with pytest.raises(PtxSyntaxError):
        translate(only(text))


@pytest.mark.parametrize(
    ("instruction", "says"),
    [
        ("frobnicate.u32 %r1, %r2;", r"frobnicate\.u32"),
        ("add.strange.u32 %r1, %r2, %r3;", "strange"),
        ("mul.lo.strange.u32 %r1, %r2, %r3;", "strange"),
        ("ld.global.L1::unknown.b32 %r1, [%rd1];", "L1::unknown"),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs1, %r1, %r2;", "satfinite"),
        ("shfl.sync.sideways.b32 %r1, %r2, 1, 31, -1;", "sideways"),
        (
            "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32 {%r1, %r2}, {%r3}, {%r4}, {%r5, %r6};",
            "m8n8k128",
        ),
        ("bar.arrive 1, 64;", "bar.arrive"),
        ("call.uni f;", "call"),
        ("wgmma.fence.async;", "wgmma"),
    ],
)
def test_an_instruction_that_is_not_executed_is_named(instruction, says):
    with pytest.raises(UnsupportedInstruction, match=says):
        translate(only(kernel(instruction)))
