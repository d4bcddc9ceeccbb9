"""The loader of object files: what it loads, and that damaged ones raise."""

from __future__ import annotations

import ctypes
import random
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.native.executor import executor_text
from compiler.codegen.native.host import detected
from compiler.codegen.native.machine import AVX2, AVX512, NEON
from runtime.native import memory
from runtime.native.build import assembly, build, link
from runtime.native.elf import ARM, X86, BadObject, parse
from runtime.native.relocate import apply, stub
from tests.runtime.native.kernels import double, sums

HERE = detected()
CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

COPY = """
@table = private unnamed_addr constant [16 x float] [{numbers}], align 64
@unused = global i32 0
define void @copy(ptr %arguments, i64 %first, i64 %last) nounwind {{
entry:
  %y = load ptr, ptr %arguments, align 8
  call void @llvm.memset.p0.i64(ptr %y, i8 7, i64 %last, i1 false)
  %at = getelementptr i8, ptr %y, i64 1024
  call void @llvm.memcpy.p0.p0.i64(ptr %at, ptr @table, i64 64, i1 false)
  %from = getelementptr i8, ptr %y, i64 8
  call void @llvm.memmove.p0.p0.i64(ptr %y, ptr %from, i64 %last, i1 false)
  ret void
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
""".format(numbers=", ".join(f"float {n}.0" for n in range(16)))
TEXT = COPY.replace("@unused = global i32 0\n", "")


def built(text, machine=HERE):
    return build({"kernel": text}, machine)["kernel"]


def call(code, name, *slots):
    words = np.array(slots, "i8")
    CALL(code.addresses[name])(words.ctypes.data, 0, 512)


def test_constants_and_functions_of_the_c_library():
    code = memory.load({"copy": built(TEXT)}, {"copy": ["copy"]})
    y = np.zeros(2048, "u1")
    call(code, "copy", y.ctypes.data)
    assert (y[:504] == 7).all()
    assert np.array_equal(y[1024:1088].view("f4"), np.arange(16))


def test_several_objects_share_a_region():
    names = {"a": ["double"], "b": ["sums"]}
    objects = {"a": built(double().text()), "b": built(sums().text())}
    code = memory.load(objects, names)
    assert abs(code.addresses["double"] - code.addresses["sums"]) < 1 << 16


def test_pages_are_never_both_writable_and_executable():
    code = memory.load({"copy": built(TEXT)}, {"copy": ["copy"]})
    modes = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, mode = line.split()[:2]
        start, end = (int(each, 16) for each in bounds.split("-"))
        if start <= code.addresses["copy"] < end:
            modes.append(mode)
    assert modes == ["r-xp"]


def is_mapped(address):
    """Whether an address can be executed; neighbouring ranges may be one line of the list."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, *_ = line.split()
        start, stop = (int(each, 16) for each in place.split("-"))
        if start <= address < stop:
            return "x" in rights
    return False


def test_memory_is_freed_with_the_code():
    code = memory.load({"copy": built(TEXT)}, {"copy": ["copy"]})
    address = code.addresses["copy"]
    assert is_mapped(address)
    del code
    assert not is_mapped(address)


def test_llvm_s_linker_serves_other_systems(monkeypatch):
    addresses, held = link([built(double().text())], ["double"])
    x, y = np.ones((1, 5), "f4"), np.zeros((1, 5), "f4")
    words = np.array([x.ctypes.data, y.ctypes.data, 5], "i8")
    CALL(addresses["double"])(words.ctypes.data, 0, 1)
    assert (y == 2).all() and held is not None
    monkeypatch.setattr(memory, "_c_library", lambda: None)
    code = memory.load({"d": built(double().text())}, {"d": ["double"]})
    assert code.addresses["double"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (COPY, "writable data in section .bss"),
        (COPY.replace("global i32 0", "global i32 5"), "writable data in section .data"),
        (
            TEXT.replace("llvm.memset.p0.i64", "system"),
            "'system'",
        ),
        (TEXT.replace("@copy", "@other"), "does not define copy"),
        (TEXT.replace("define", "define internal"), "does not define copy"),
    ],
)
def test_unsupported_sections_are_errors(text, reason):
    with pytest.raises(BadObject, match=reason):
        memory.load({"copy": built(text)}, {"copy": ["copy"]})


def test_other_files_are_errors():
    for data in (b"", b"\x7fELF", b"MZ" * 100, b"\x7fELF\x02\x01\x01" + b"\0" * 200):
        with pytest.raises(BadObject):
            parse(data)
    good = built(double().text())
    for place, value, reason in (
        (4, 1, "64-bit"),
        (5, 2, "64-bit"),
        (16, 2, "64-bit"),
        (18, 3, "architecture 3"),
    ):
        bad = bytearray(good)
        bad[place] = value
        with pytest.raises(BadObject, match=reason):
            parse(bytes(bad))


def sections(data):
    start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    return [start + 64 * number for number in range(count)]


@pytest.mark.parametrize("field", range(10))
@pytest.mark.parametrize("value", [0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF])
def test_damaged_section_tables_never_crash(field, value):
    """Each field of each section is replaced: the object loads as before, or raises."""
    good = built(TEXT)
    offset, form = ((0, "<I"), (4, "<I"), (8, "<Q"), (16, "<Q"), (24, "<Q"), (32, "<Q"), (40, "<I"),
                    (44, "<I"), (48, "<Q"), (56, "<Q"))[field]  # fmt: skip
    for place in sections(good):
        bad = bytearray(good)
        struct.pack_into(form, bad, place + offset, value)
        load_or_raise(bytes(bad))


def test_bytes_at_random_never_crash():
    """Loading never crashes; whether damaged instructions do what they did is the checksum's part."""
    good = built(executor_text(HERE))
    draw = random.Random(5)
    for _ in range(600):
        bad = bytearray(good)
        for _ in range(draw.choice((1, 2, 8, 64))):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        load_or_raise(bytes(bad[: draw.choice((len(bad), draw.randrange(len(bad))))]))


def load_or_raise(data):
    with suppress(BadObject):
        memory.load({"kernel": data}, {"kernel": []})


def test_huge_sizes_take_no_memory(monkeypatch):
    monkeypatch.setattr(memory.mmap, "mmap", lambda *_: pytest.fail("memory was mapped"))
    good = built(TEXT)
    for place in sections(good)[1:]:
        bad = bytearray(good)
        struct.pack_into("<Q", bad, place + 8, 6)  # loaded, executable
        struct.pack_into("<Q", bad, place + 32, 1 << 40)
        with pytest.raises(BadObject):
            memory.load({"kernel": bytes(bad)}, {"kernel": []})


# Relocations


def test_x86_relocations():
    for kind, size, value in (
        (1, 8, 0x123456789),
        (2, 4, 0x1000),
        (4, 4, -0x1000),
        (24, 8, 1 << 40),
    ):
        code = bytearray(16)
        place = 0 if kind == 1 else 0x7000
        apply(X86, kind, code, 4, value + place, place)
        assert int.from_bytes(code[4 : 4 + size], "little", signed=True) == value
    for kind, offset, target in ((2, 4, 1 << 31), (2, 4, -(1 << 31) - 1), (1, 9, 0), (2, 13, 0)):
        with pytest.raises(BadObject):
            apply(X86, kind, bytearray(16), offset, target, 0)
    with pytest.raises(BadObject, match="unknown type 9"):
        apply(X86, 9, bytearray(16), 0, 0, 0)


def word(kind, instruction, target, place):
    code = bytearray(struct.pack("<I", instruction))
    apply(ARM, kind, code, 0, target, place)
    return struct.unpack("<I", code)[0]


def test_arm_relocations():
    """Instructions as the Arm manual encodes them."""
    assert word(283, 0x94000000, 0x2000, 0x1000) == 0x94000400  # bl +0x1000
    assert word(283, 0x94000000, 0x1000, 0x2000) == 0x97FFFC00  # bl -0x1000
    assert word(275, 0x90000000, 0x5678, 0x1004) == 0x90000020  # adrp x0, +4 pages
    assert word(275, 0x90000000, 0x1678, 0x3004) == 0xD0FFFFE0  # adrp x0, -2 pages
    assert word(277, 0x91000000, 0x5678, 0) == 0x9119E000  # add x0, x0, #0x678
    assert word(278, 0x39400000, 0x5678, 0) == 0x3959E000  # ldrb w0, [x0, #0x678]
    assert word(285, 0xBD400000, 0x5678, 0) == 0xBD467800  # ldr s0, [x0, #0x678]
    assert word(286, 0xFD400000, 0x5678, 0) == 0xFD433C00  # ldr d0, [x0, #0x678]
    assert word(299, 0x3DC00000, 0x5670, 0) == 0x3DC19C00  # ldr q0, [x0, #0x670]
    assert word(274, 0x10000000, 0x1005, 0x1000) == 0x30000020  # adr x0, +5
    for kind, target in ((283, 1 << 27), (283, 2), (275, 1 << 33), (274, 1 << 20), (299, 8)):
        with pytest.raises(BadObject):
            word(kind, 0, target, 0)


def test_arm_objects_are_relocated():
    """An object for AArch64 is laid out and relocated, though not run here."""
    data = built(TEXT, NEON)
    loader = memory._Loader([parse(data)])
    image = loader._image(0x10000)
    assert len(image) % 4096 == 0
    kinds = {relocation.kind for relocation in parse(data).relocations}
    assert kinds <= {257, 260, 261, 274, 275, 277, 278, 282, 283, 284, 285, 286, 299}


def test_stubs_jump_to_an_address():
    assert stub(X86, 0x1122334455667788)[6:14] == bytes.fromhex("8877665544332211")
    assert len(stub(ARM, 1)) == len(stub(X86, 1)) == 16


def test_assembly_of_any_machine():
    for each, register in ((AVX512, "zmm"), (AVX2, "ymm"), (NEON, "fadd\tv")):
        lanes = each.vector_bytes // 4
        text = f"""
define void @add(ptr %p) nounwind {{
entry:
  %x = load <{lanes} x float>, ptr %p, align 4
  %y = fadd <{lanes} x float> %x, %x
  store <{lanes} x float> %y, ptr %p, align 4
  ret void
}}
"""
        assert register in assembly(text, each)
