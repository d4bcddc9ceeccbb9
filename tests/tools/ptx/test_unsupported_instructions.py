"""Instructions that are not implemented raise an error with their name; none is skipped."""

import numpy as np
import pytest

from tests.tools.ptx.instruction_text import THREADS, kernel
from tests.tools.ptx.runner import execute
from tools.ptx.errors import UnsupportedInstruction

UNKNOWN = [
    "add.weird.f32 %r10, %r11, %r12;",
    "add.rna.f32 %r10, %r11, %r12;",
    "frob.b32 %r10, %r11;",
    "mul.f8 %r10, %r11, %r12;",
    "cvt.rn.satfinite.e4m3x2.f32 %rs10, %r11, %r12;",
    "cvt.frob.s32.f32 %r10, %r11;",
    "setp.weird.f32 %p1, %r11, %r12;",
    "selp.b32.weird %r10, %r11, %r12, %p1;",
    "shfl.sync.weird.b32 %r10, %r11, 1, 31, -1;",
    "redux.sync.mul.s32 %r10, %r11, -1;",
    "vote.sync.most.pred %p1, %p2, -1;",
    "ld.global.weird.b32 %r10, [%rd0];",
    "st.weird.b32 [%rd0], %r10;",
    "atom.global.gpu.relaxed.frob.b32 %r10, [%rd0], %r11;",
    "cp.async.weird.shared.global [%r10], [%rd0], 4;",
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r10}, [%r11];",
    "mma.sync.aligned.m16n8k16.row.col.f32.f99.f99.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4};",
    "prmt.b32.weird %r10, %r11, %r12, %r13;",
    "mad.weird.s32 %r10, %r11, %r12, %r13;",
    "shf.l.weird.b32 %r10, %r11, %r12, %r13;",
    "bar.weird 0;",
    "ex2.approx.weird.f32 %r10, %r11;",
]


@pytest.mark.parametrize("line", UNKNOWN, ids=lambda line: line.split()[0])
def test_unknown_instructions_are_refused_by_name(line: str) -> None:
    body = [f"mov.b32 %r{n}, {n};" for n in (9, 10, 11, 12, 13)] + [line]
    with pytest.raises(UnsupportedInstruction, match=line.split(maxsplit=1)[0].replace(".", r"\.")):
        execute(kernel("one", 1, body), [np.zeros(THREADS, "u4")])
