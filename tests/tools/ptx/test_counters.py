"""Counters of the PTX machine: sectors, bank passes, instructions, divergence."""

import numpy as np
import pytest

from tests.tools.ptx.support import kernel
from tools.ptx import Memory
from tools.ptx.counters import Counting
from tools.ptx.counters.banks import passes
from tools.ptx.counters.results import SECTOR
from tools.ptx.counters.sectors import Cache, Footprint
from tools.ptx.errors import MemoryFault
from tools.ptx.launch import kernels, launch

LOAD = """
mul.lo.u32 %r1, %r0, {step};
mul.wide.u32 %rd10, %r1, 4;
add.u64 %rd11, %rd0, %rd10;
ld.global.b32 %r2, [%rd11];
mul.wide.u32 %rd12, %r0, 4;
add.u64 %rd13, %rd1, %rd12;
st.global.b32 [%rd13], %r2;
"""
TABLE = ".shared .align 16 .b8 table[4096];\n"


def counted(body, *arrays, grid=1, threads=32, head=""):
    """The counters of a launch of `body` over arrays."""
    (program,) = kernels(kernel(body, len(arrays), head)).values()
    memory, counting = Memory(), Counting()
    addresses = [memory.add(f"p{n}", array) for n, array in enumerate(arrays)]
    parameters = {f"p{n}": at.to_bytes(8, "little") for n, at in enumerate(addresses)}
    with counting.launch(program, memory) as observed:
        launch(observed, (grid, 1, 1), (threads, 1, 1), 0, parameters, memory)
    return counting.kernels["k"]


def words(count):
    """Zeros at an address that begins a sector."""
    whole = np.zeros(count + 16, "u4")
    skip = -whole.ctypes.data % 64 // 4
    return whole[skip : skip + count]


@pytest.mark.parametrize(("step", "sectors"), [(1, 4), (2, 8), (8, 32), (16, 32), (0, 1)])
def test_a_strided_load_fetches_more_sectors(step, sectors):
    result = counted(LOAD.format(step=step), words(512), words(32))
    assert (result.loads.accesses, result.loads.requests, result.loads.fetched) == (
        1,
        sectors,
        sectors,
    )
    assert result.loads.touched == sectors
    assert result.loads.ideal == result.loads.used == (4 if step == 0 else 128)
    assert (result.stores.requests, result.stores.ideal) == (4, 128)
    assert result.fetched_ratio == SECTOR * (sectors + 4) / (result.loads.ideal + 128)


def test_a_cta_fetches_a_sector_once_and_others_again():
    again = "ld.global.b32 %r3, [%rd0];\n" * 3
    result = counted(again, words(8), grid=2, threads=64)
    assert (result.loads.accesses, result.loads.requests) == (12, 12)
    assert (result.loads.fetched, result.loads.touched, result.loads.ideal) == (2, 1, 4)


def test_a_cache_keeps_the_latest_sectors_of_each_cta():
    cache, sectors = Cache(2), np.arange(1024)
    one, other = np.zeros(1024, "i8"), np.ones(1024, "i8")
    assert [cache.fetch(one, sectors) for _ in range(2)] == [1024, 0]
    assert cache.fetch(other, sectors) == 1024
    assert cache.fetch(one, sectors + (1 << 30)) == 1024
    assert cache.fetch(one, sectors) == 1024


def test_stores_write_through():
    result = counted("st.global.b32 [%rd0], %r0;\n" * 3, words(8))
    assert (result.stores.fetched, result.stores.touched, result.stores.ideal) == (3, 1, 4)


@pytest.mark.parametrize(("step", "expected"), [(1, 1), (2, 2), (32, 32), (33, 1), (0, 1)])
def test_bank_passes_of_shared_memory(step, expected):
    body = (
        f"mov.u32 %r1, table;\nmad.lo.u32 %r2, %r0, {4 * step}, %r1;\nst.shared.b32 [%r2], %r0;\n"
    )
    size = 4 * (31 * step + 1)
    actual = counted(body, head=f".shared .align 16 .b8 table[{size}];\n")
    assert (actual.banks.accesses, actual.banks.passes) == (1, expected)


def test_wide_accesses_take_a_pass_for_each_128_bytes():
    lanes = np.arange(32)
    assert passes(lanes, 8 * lanes, 8) == (2, 2)
    assert passes(lanes, 16 * lanes, 16) == (4, 4)
    assert passes(lanes, 128 * lanes, 16) == (4, 32)
    assert passes(lanes[:3], 256 * lanes[:3], 4) == (1, 3)


def test_asynchronous_copies_are_loads_and_shared_stores():
    body = """
    mov.u32 %r1, table;
    mad.lo.u32 %r2, %r0, 16, %r1;
    mul.wide.u32 %rd10, %r0, 16;
    add.u64 %rd11, %rd0, %rd10;
    cp.async.cg.shared.global [%r2], [%rd11], 16;
    cp.async.wait_all;
    """
    result = counted(body, words(128), head=TABLE)
    assert (result.loads.fetched, result.loads.ideal) == (16, 512)
    assert (result.banks.accesses, result.banks.passes) == (4, 4)


def test_divergence_is_the_share_of_lanes_that_wait():
    body = "setp.lt.u32 %p0, %r0, 8;\n@!%p0 bra end;\n" + "add.u32 %r1, %r0, 1;\n" * 100 + "end:"
    result = counted(body)
    assert result.instructions["integer"] == 101
    assert 0.6 < result.divergence < 0.75
    assert counted("add.u32 %r1, %r0, 1;").divergence == 0


def test_classes_of_instructions_count_warps():
    body = "cvt.rn.f32.u32 %r1, %r0;\nex2.approx.f32 %r2, %r1;\nfma.rn.f32 %r3, %r1, %r2, %r1;\n"
    result = counted(body, threads=64)
    assert {name: result.instructions[name] for name in ("conversion", "float")} == {
        "conversion": 2, "float": 2,
    }  # fmt: skip
    assert result.instructions["special functions"] == 2


def test_counters_by_line_and_name_add_up():
    result = counted(LOAD.format(step=8), words(256), words(32))
    assert sum(line.traffic.fetched for line in result.lines.values()) == 36
    assert result.data()["loads"]["fetched"] == 32


def test_variables_of_a_module_are_counted_and_faults_named():
    body = "mov.u64 %rd10, held;\nld.global.b32 %r2, [%rd10];\n"
    result = counted(body, words(8), head=".global .align 4 .b32 held = 7;\n")
    assert result.loads.ideal == 4
    with pytest.raises(MemoryFault, match="byte 64 of p0"):
        counted("ld.global.b32 %r2, [%rd0+64];", words(8))


def test_a_footprint_spans_several_ranges():
    starts, stops = np.array([40, 4096], "u8"), np.array([72, 4104], "u8")
    print_ = Footprint(starts, stops)
    print_.mark(np.array([64, 4100], "u8"), 4)
    print_.mark(np.array([64], "u8"), 4)
    assert (print_.nbytes, print_.sectors) == (8, 2)
