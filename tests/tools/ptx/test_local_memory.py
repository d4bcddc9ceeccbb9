"""Local memory, functions, tables of constants and loops of different lengths, as sin and cos use them."""

import random

import numpy as np
import pytest

from tests.tools.ptx.instruction_text import THREADS, address, kernel, store
from tests.tools.ptx.runner import column, execute
from tools.ptx.errors import UnsupportedInstruction

FUNCTION = """.func (.param .b64 func_retval0) stepped(
	.param .b64 stepped_param_0,
	.param .b64 stepped_param_1
)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.b64 %rd0, [stepped_param_0];
	ld.param.b64 %rd1, [stepped_param_1];
	cvt.u32.u64 %r1, %rd0;
	add.s32 %r2, %r1, 7;
	st.b32 [%rd1], %r2;
	mad.lo.s64 %rd2, %rd0, 3, 1;
	st.param.b64 [func_retval0], %rd2;
	ret;
}
"""
DEPOT = """	.local .align 16 .b8 __local_depot0[32];
	.reg .b64 %SP;
	.reg .b64 %SPL;
"""
CALL = """{ // callseq 0, 0
	.param .b64 param0;
	.param .b64 param1;
	.param .b64 retval0;
	st.param.b64 [param1], %rd12;
	st.param.b64 [param0], %rd10;
	call.uni (retval0), stepped, (param0, param1);
	ld.param.b64 %rd10, [retval0];
	} // callseq 0"""


def stepped(value: int, rounds: int, slot: int) -> tuple[int, int]:
    """The value after all rounds, and what a slot of local memory holds then."""
    slots = [0] * 4
    for index in range(rounds):
        slots[index % 4] = (value + 7) & 0xFFFFFFFF
        value = (3 * value + 1) & ((1 << 64) - 1)
    return value, slots[slot]


def with_declarations(text: str, outside: str, inside: str) -> str:
    """A kernel's text with declarations before it and at the start of its body."""
    place = text.index("{\n") + 2
    return text[:place].replace(".visible", outside + ".visible") + inside + text[place:]


def test_functions_write_to_their_callers_local_memory() -> None:
    body = [
        "mov.b64 %SPL, __local_depot0;", "cvta.local.u64 %SP, %SPL;", "add.u64 %rd13, %SPL, 0;",
        *(f"st.local.b32 [%rd13+{4 * n}], 0;" for n in range(4)),
        *address(2, 8, 22), "ld.global.b64 %rd10, [%rd22];", "and.b32 %r10, %r0, 7;", "mov.b32 %r11, 0;",
        "setp.eq.b32 %p1, %r10, 0;", "@%p1 bra $L__BB0_2;",
        "$L__BB0_1:",
        "and.b32 %r12, %r11, 3;", "mul.wide.u32 %rd11, %r12, 4;", "add.s64 %rd12, %SP, %rd11;", CALL,
        "add.s32 %r11, %r11, 1;", "setp.lt.u32 %p2, %r11, %r10;", "@%p2 bra $L__BB0_1;",
        "$L__BB0_2:",
        *address(0, 8, 20), "st.global.b64 [%rd20], %rd10;", "shr.u32 %r13, %r0, 3;", "and.b32 %r13, %r13, 3;",
        "mad.wide.u32 %rd14, %r13, 4, %rd13;", "ld.local.b32 %r14, [%rd14];", *store(1, "%r14"),
    ]  # fmt: skip
    source = random.Random(2)
    values = [source.getrandbits(64) for _ in range(2 * THREADS)]
    out, slots = np.zeros(len(values), "u8"), np.zeros(len(values), "u4")
    text = with_declarations(kernel("one", 3, body), FUNCTION, DEPOT)
    execute(text, [out, slots, column(values, "u8")], 2)
    expected = [stepped(value, n & 7, (n >> 3) & 3) for n, value in enumerate(values)]
    assert list(zip(out.tolist(), slots.tolist(), strict=True)) == expected


def test_tables_of_constants() -> None:
    """Bytes in the text are little-endian words of memory, loaded by the read-only path."""
    data = random.Random(4).randbytes(128)
    table = f".global .align 8 .b8 table[128] = {{{', '.join(map(str, data))}}};\n"
    body = [
        "mov.b64 %rd10, table;", "and.b32 %r10, %r0, 15;", "mad.wide.u32 %rd11, %r10, 8, %rd10;",
        "ld.global.nc.b64 %rd12, [%rd11];", "ld.global.nc.b32 %r11, [%rd11+4];", *store(1, "%r11"),
        *address(0, 8, 20), "st.global.b64 [%rd20], %rd12;",
    ]  # fmt: skip
    out, high = np.zeros(THREADS, "u8"), np.zeros(THREADS, "u4")
    execute(with_declarations(kernel("one", 2, body), table, ""), [out, high])
    words = [int.from_bytes(data[8 * n : 8 * n + 8], "little") for n in range(16)] * (THREADS // 16)
    assert out.tolist() == words
    assert high.tolist() == [word >> 32 for word in words]


def test_functions_that_have_no_body_or_call_themselves_are_refused() -> None:
    declared = ".func  stop\n(\n.param .b32 stop_param_0\n)\n.noreturn;\n"
    itself = ".func again() { call again; ret; }\n"
    for name, outside in (("stop", declared), ("again", itself)):
        text = with_declarations(kernel("one", 1, [f"call.uni {name};"]), outside, "")
        with pytest.raises(UnsupportedInstruction, match=name):
            execute(text, [np.zeros(4, "u4")])
