"""The forms that kernels of this project use for sm_80, and some more of the same families."""

from tests.tools.ptx.forms import Form, form
from tests.tools.ptx.integers import permute, table

FLOATS = """
add.f32 add.rz.f32 add.rm.f32 add.rp.f32 add.ftz.f32 add.sat.f32 sub.f32 sub.rm.f32 sub.ftz.f32
mul.f32 mul.rz.f32 mul.rm.f32 mul.rp.f32 mul.ftz.f32 mul.rn.ftz.f32 mul.sat.f32
fma.rn.f32 fma.rz.f32 fma.rm.f32 fma.rp.f32 fma.rn.ftz.f32 fma.rn.sat.f32
div.rn.f32 div.rn.ftz.f32 div.full.f32 div.full.ftz.f32 div.approx.f32 rcp.rn.f32 sqrt.rn.f32
min.f32 max.f32 min.NaN.f32 max.NaN.f32 min.ftz.f32 max.ftz.f32 abs.f32 neg.f32 abs.ftz.f32
copysign.f32 copysign.f64 mov.f32
rcp.approx.f32 rcp.approx.ftz.f32 sqrt.approx.f32 sqrt.approx.ftz.f32 rsqrt.approx.f32
rsqrt.approx.ftz.f32 ex2.approx.f32 ex2.approx.ftz.f32 lg2.approx.f32 lg2.approx.ftz.f32
tanh.approx.f32 rcp.approx.ftz.f64
add.f64 add.rn.f64 add.rz.f64 add.rm.f64 sub.f64 sub.rm.f64 mul.f64 mul.rn.f64 mul.rm.f64 fma.rn.f64 fma.rp.f64 fma.rm.f64 div.rn.f64 rcp.rn.f64
sqrt.rn.f64 min.f64 max.f64 abs.f64 neg.f64
add.f16 sub.f16 mul.f16 fma.rn.f16 min.f16 max.f16 min.NaN.f16 max.NaN.f16 neg.f16 abs.f16
add.f16x2 sub.f16x2 mul.f16x2 fma.rn.f16x2 min.f16x2 max.NaN.f16x2 neg.f16x2 abs.f16x2
fma.rn.bf16 min.bf16 max.bf16 max.NaN.bf16 neg.bf16 abs.bf16
fma.rn.bf16x2 min.bf16x2 max.NaN.bf16x2 neg.bf16x2 abs.bf16x2
"""

CONVERSIONS = """
cvt.rn.f16.f32 cvt.rz.f16.f32 cvt.rm.f16.f32 cvt.rp.f16.f32 cvt.rn.sat.f16.f32 cvt.f32.f16
cvt.rn.bf16.f32 cvt.rz.bf16.f32 cvt.f32.bf16 cvt.rn.f16x2.f32 cvt.rn.bf16x2.f32
cvt.rn.relu.bf16x2.f32 cvt.rz.f16x2.f32 cvt.rna.tf32.f32
cvt.rn.f32.f64 cvt.rz.f32.f64 cvt.rm.f32.f64 cvt.rp.f32.f64 cvt.f64.f32 cvt.rn.f16.f64 cvt.f64.f16
cvt.rni.f32.f32 cvt.rzi.f32.f32 cvt.rmi.f32.f32 cvt.rpi.f32.f32 cvt.sat.f32.f32 cvt.ftz.f32.f32
cvt.rmi.ftz.f32.f32 cvt.rpi.ftz.f32.f32 cvt.rni.ftz.f32.f32 cvt.rzi.ftz.f32.f32
cvt.rni.f64.f64 cvt.rmi.f64.f64 cvt.rpi.f64.f64 cvt.rzi.f64.f64
cvt.rzi.s32.f32 cvt.rni.s32.f32 cvt.rmi.s32.f32 cvt.rpi.s32.f32 cvt.rzi.ftz.s32.f32 cvt.rni.ftz.s32.f32
cvt.rzi.u32.f32 cvt.rzi.s64.f32 cvt.rzi.u64.f32 cvt.rzi.s16.f32 cvt.rzi.u16.f32
cvt.rzi.s8.f32 cvt.rzi.u8.f32
cvt.rzi.s32.f64 cvt.rni.s32.f64 cvt.rzi.u32.f64 cvt.rzi.s64.f64 cvt.rzi.u64.f64
cvt.rzi.s32.f16 cvt.rzi.s16.f16 cvt.rzi.u16.f16 cvt.rni.s64.f16
cvt.rn.f32.s32 cvt.rn.f32.u32 cvt.rz.f32.s32 cvt.rm.f32.s32 cvt.rp.f32.u32 cvt.rn.f32.s64
cvt.rn.f32.u64 cvt.rn.f32.s16 cvt.rn.f32.u16 cvt.rn.f32.s8 cvt.rn.f32.u8
cvt.rn.f64.s32 cvt.rn.f64.u32 cvt.rn.f64.s64 cvt.rn.f64.u64 cvt.rn.f64.s16 cvt.rz.f64.s64
cvt.rn.f16.s32 cvt.rn.f16.u32 cvt.rn.f16.s16 cvt.rn.f16.s64 cvt.rz.f16.u64
cvt.u32.u64 cvt.u64.u32 cvt.s64.s32 cvt.u16.u32 cvt.u32.u16 cvt.u16.u64 cvt.u64.u16 cvt.s32.s16 cvt.s64.s16
cvt.s32.s8 cvt.u32.u8 cvt.s16.s8 cvt.u16.u8 cvt.s64.s8 cvt.s8.s32 cvt.u8.u32 cvt.s8.s64
cvt.s32.s64 cvt.s16.s32 cvt.sat.s8.s32 cvt.sat.u8.s32 cvt.sat.s16.s32 cvt.sat.s32.s64
cvt.sat.u32.s32 cvt.sat.u32.s64 cvt.sat.s32.u32
"""

INTEGERS = """
add.s32 add.u32 add.s64 add.s16 add.u64 sub.s32 sub.s64 sub.s16 mul.lo.s32 mul.lo.s64 mul.lo.s16
mul.lo.u32 mul.hi.s32 mul.hi.u32 mul.hi.s64 mul.hi.u64 mul.hi.s16 mul.hi.u16
mul.wide.s32 mul.wide.u32 mul.wide.s16 mul.wide.u16 mad.lo.s32 mad.lo.s64 mad.lo.s16 mad.hi.s32
mad.hi.u32 mad.wide.s32 mad.wide.u32 mad.wide.s16 mad.wide.u16
div.s32 div.u32 div.s64 div.u64 div.s16 div.u16 rem.s32 rem.u32 rem.s64 rem.u64 rem.s16 rem.u16
min.s32 min.u32 min.s64 min.u64 min.s16 min.u16 max.s32 max.u32 max.s64 max.u64 max.s16 max.u16
abs.s32 abs.s64 abs.s16 neg.s32 neg.s64 neg.s16
and.b16 and.b32 and.b64 or.b16 or.b32 or.b64 xor.b16 xor.b32 xor.b64 not.b16 not.b32 not.b64
and.pred or.pred xor.pred not.pred mov.pred mov.b16 mov.u16 mov.b32 mov.u32 mov.b64 mov.u64
shl.b16 shl.b32 shl.b64 shr.u16 shr.u32 shr.u64 shr.s16 shr.s32 shr.s64 shr.b32
shf.l.wrap.b32 shf.l.clamp.b32 shf.r.wrap.b32 shf.r.clamp.b32
bfe.u32 bfe.s32 bfe.u64 bfe.s64 bfi.b32 bfi.b64 prmt.b32 popc.b32 popc.b64 clz.b32 clz.b64
brev.b32 brev.b64 bfind.u32 bfind.s32
add.s16x2 add.u16x2 min.s16x2 min.u16x2 max.s16x2 max.u16x2
selp.b16 selp.b32 selp.b64 selp.f32 selp.f64 selp.s32 selp.u32
"""


def _comparisons() -> list[str]:
    ordered, unsigned = "eq ne lt le gt ge".split(), "eq ne lo ls hi hs lt le gt ge".split()
    floats = [*ordered, *(name + "u" for name in ordered), "num", "nan"]
    names = [f"setp.{test}.{kind}" for test in floats for kind in ("f32", "f64", "f16")]
    names += [f"setp.{test}.{kind}" for test in ordered for kind in ("s16", "s32", "s64")]
    names += [f"setp.{test}.{kind}" for test in unsigned for kind in ("u16", "u32", "u64")]
    names += [f"setp.{test}.{kind}" for test in ("eq", "ne") for kind in ("b16", "b32", "b64")]
    return [*names, "setp.lt.ftz.f32", "setp.eq.ftz.f32", "setp.leu.ftz.f32"]


LISTED = [*(FLOATS + CONVERSIONS + INTEGERS).split(), *_comparisons()]
"""Names of all forms from registers to a register."""

TABLES = (0x00, 0xFF, 0xF0, 0x96, 0xE8, 0xCA, 0x1B)
"""Immediates of lop3: constants, one operand, parity, majority, a choice, one without symmetry."""


def lop3(immediate: int) -> Form:
    """The form of lop3 with that table."""
    text = f"{{0}}, {{1}}, {{2}}, {immediate}"
    return Form("lop3.b32", "b32", ("b32",) * 3, table(immediate), None, text)


SELECTORS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""Modes of prmt: the bytes chosen for each value of the low two bits of c."""


def prmt(mode: str) -> Form:
    """The form of prmt with a mode."""
    chosen = SELECTORS[mode]
    operands = ("b32", "b32", "count")
    return Form(f"prmt.b32.{mode}", "b32", operands, lambda a, b, c: permute(a, b, chosen[c & 3]))


FORMS = [
    *map(form, LISTED),
    *map(lop3, TABLES),
    *map(prmt, SELECTORS),
]
"""Every form that tests execute."""


def label(form: Form) -> str:
    """The form as the name of a test."""
    return f"{form.name}{form.text[15:]}"
