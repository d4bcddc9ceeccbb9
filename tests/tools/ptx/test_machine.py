"""Hand-written kernels: divergence, barriers, memory, and what a launch may not do."""

import numpy as np
import pytest

from tests.tools.ptx.support import elementwise, kernel
from tools.ptx import Memory, execute
from tools.ptx.errors import BarrierFault, Hazard, LaunchError, MemoryFault, PtxError

STORE = "mad.wide.u32 %rd40, %r0, 4, %rd0;\nst.global.b32 [%rd40], %r20;"


def stored(body, threads=64, grid=1, head="", **more):
    """What each thread leaves in %r20."""
    out = np.zeros(threads, "u4")
    execute(kernel(f"{body}\n{STORE}", 1, head), "k", grid, threads, [out], **more)
    return out


def test_branch_sides_reconverge():
    body = (
        "and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra $A;\n"
        "mov.u32 %r20, 7;\nbra.uni $B;\n$A: mov.u32 %r20, 9;\n$B: add.u32 %r20, %r20, %r0;"
    )
    thread = np.arange(64)
    np.testing.assert_array_equal(stored(body), np.where(thread % 2, 7, 9) + thread)


def test_a_loop_runs_as_often_as_each_thread_asks():
    body = (
        "mov.u32 %r20, 0;\nmov.u32 %r1, 0;\n$L: setp.ge.u32 %p1, %r1, %r0;\n@%p1 bra $E;\n"
        "add.u32 %r20, %r20, %r1;\nadd.u32 %r1, %r1, 1;\nbra $L;\n$E: add.u32 %r20, %r20, 0;"
    )
    thread = np.arange(64)
    np.testing.assert_array_equal(stored(body), thread * (thread - 1) // 2)


def test_lanes_reconverge_before_a_shuffle():
    body = (
        "setp.lt.u32 %p1, %r0, 10;\n@%p1 bra $A;\nmov.u32 %r1, 1;\nbra.uni $B;\n"
        "$A: mov.u32 %r1, 2;\n$B: shfl.sync.bfly.b32 %r20, %r1, 16, 31, -1;"
    )
    first = np.arange(32) ^ 16
    np.testing.assert_array_equal(stored(body, 32), np.where(first < 10, 2, 1))


def test_a_shuffle_that_a_part_of_the_warp_misses_is_a_fault():
    body = (
        "setp.lt.u32 %p1, %r0, 10;\nmov.u32 %r1, 1;\n@%p1 shfl.sync.bfly.b32 %r20, %r1, 1, 31, -1;"
    )
    with pytest.raises(BarrierFault, match="mask of members"):
        stored(body, 32)


def test_shared_memory_is_that_of_a_cta():
    head = ".shared .align 4 .b8 box[256];\n"
    body = (
        "mov.u32 %r1, box;\nmad.lo.u32 %r2, %r0, 4, %r1;\nmov.u32 %r5, %ctaid.x;\n"
        "mad.lo.u32 %r6, %r5, 100, %r0;\nst.shared.b32 [%r2], %r6;\nbar.sync 0;\n"
        "sub.u32 %r3, 63, %r0;\nmad.lo.u32 %r4, %r3, 4, %r1;\nld.shared.b32 %r20, [%r4];\n"
        "mad.lo.u32 %r0, %r5, 64, %r0;"
    )
    out = np.zeros(192, "u4")
    execute(kernel(f"{body}\n{STORE}", 1, head), "k", 3, 64, [out])
    want = np.arange(3)[:, None] * 100 + np.arange(63, -1, -1)
    np.testing.assert_array_equal(out.reshape(3, 64), want)


def test_a_barrier_that_a_part_of_the_cta_misses_is_a_fault():
    with pytest.raises(BarrierFault, match="10 of 64 threads"):
        stored("setp.lt.u32 %p1, %r0, 10;\n@%p1 bar.sync 0;\nmov.u32 %r20, 1;")
    with pytest.raises(BarrierFault, match="54 of 64"):
        stored("setp.lt.u32 %p1, %r0, 10;\n@%p1 ret;\nbar.sync 0;\nmov.u32 %r20, 1;")


def test_blocks_that_are_no_multiple_of_a_warp_run():
    np.testing.assert_array_equal(stored("add.u32 %r20, %r0, 1;", 5), np.arange(5) + 1)
    body = "mov.u32 %r20, %laneid;\nbar.sync 0;"
    np.testing.assert_array_equal(stored(body, 40), np.arange(40) % 32)


def test_an_access_beyond_an_argument_names_thread_line_and_bytes():
    text = kernel(
        ".loc 1 5 6 // script.py:5\nmad.wide.u32 %rd40, %r0, 4, %rd0;\nst.global.b32 [%rd40], %r0;",
        1,
    )
    with pytest.raises(
        MemoryFault, match=r"CTA 0, thread 60 and 3 more.*byte 240 of p0, which has 240"
    ) as result:
        execute(text, "k", 1, 64, [np.zeros(60, "u4")])
    assert "script.py:5" in str(result.value)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("st.global.b32 [%rd0 + 2], %r0;", "not a multiple of 4"),
        ("st.global.v4.b32 [%rd0 + 8], {%r0, %r0, %r0, %r0};", "not a multiple of 16"),
        ("st.global.b32 [0], %r0;", "below everything"),
        ("st.global.b32 [%rd0 + -4], %r0;", "below everything|has"),
        ("mov.u32 %r1, 0;\nld.shared.b32 %r2, [%r1];", "outside of 0 bytes of shared"),
    ],
)
def test_wrong_addresses_are_faults(body, says):
    with pytest.raises(MemoryFault, match=says):
        execute(kernel(body, 1), "k", 1, 1, [np.zeros(64, "u1")])


def test_arrays_that_are_read_only_cannot_be_written():
    constant = np.zeros(4, "u4")
    constant.flags.writeable = False
    with pytest.raises(MemoryFault, match="read only"):
        execute(kernel("st.global.b32 [%rd0], %r0;", 1), "k", 1, 1, [constant])


def test_addresses_in_tables_are_those_that_were_added():
    memory, far = Memory(), np.zeros(1, "u4")
    table = np.array([memory.add("far", far)], "u8")
    execute(
        kernel("ld.global.b64 %rd5, [%rd0];\nst.global.b32 [%rd5], 7;", 1),
        "k",
        1,
        1,
        [table],
        memory,
    )
    assert far[0] == 7


@pytest.mark.parametrize(
    ("grid", "block", "shared", "says"),
    [
        (0, 32, 0, "grid"),
        ((1, 70000), 32, 0, "grid"),
        (1, 2048, 0, "block"),
        (1, (64, 32), 0, "threads"),
        (1, 32, 200 << 10, "shared memory"),
    ],
)
def test_launches_that_a_driver_refuses(grid, block, shared, says):
    with pytest.raises(LaunchError, match=says):
        execute(kernel("mov.u32 %r1, 1;", 0), "k", grid, block, [], shared=shared)


def test_the_required_block_and_the_number_of_arguments_are_checked():
    text = kernel("mov.u32 %r1, 1;", 0).replace("\n{\n", "\n.reqntid 64\n{\n", 1)
    with pytest.raises(LaunchError, match="reqntid"):
        execute(text, "k", 1, 32, [])
    with pytest.raises(LaunchError, match="0 parameters, 1"):
        execute(text, "k", 1, 64, [1])
    with pytest.raises(LaunchError, match="no kernel other"):
        execute(text, "other", 1, 64, [])


def test_traps_and_missing_registers_are_errors():
    with pytest.raises(PtxError, match="trap"):
        stored("setp.eq.u32 %p1, %r0, 3;\n@%p1 trap;\nmov.u32 %r20, 1;")
    with pytest.raises(PtxError, match="clock"):
        stored("mov.u32 %r20, %clock;")


def test_copies_land_when_they_are_waited_for():
    head = ".shared .align 16 .b8 box[64];\n"
    copy = "mov.u32 %r1, box;\ncp.async.ca.shared.global [%r1], [%rd1], 16, 8;\ncp.async.commit_group;\n"
    read = "ld.shared.b32 %r20, [%r1 + 4];\nld.shared.b32 %r21, [%r1 + 12];\nadd.u32 %r20, %r20, %r21;\n"
    out, source = np.zeros(1, "u4"), np.arange(5, 9, dtype="u4")
    text = kernel(copy + "cp.async.wait_group 0;\n" + read + STORE, 2, head)
    execute(text, "k", 1, 1, [out, source])
    assert out[0] == 6
    with pytest.raises(Hazard, match="before the copy"):
        execute(kernel(copy + read + STORE, 2, head), "k", 1, 1, [out, source])


@pytest.mark.parametrize("to", ["%r2", "%rd2"])
def test_local_memory_is_a_threads_own(to):
    wide = "u64" if "d" in to else "u32"
    body = (
        f".local .align 8 .b8 box[8];\nmov.b{wide[1:]} {to}, box;\nst.local.b32 [{to}+4], %r0;\n"
        f"ld.local.b32 %r20, [{to}+4];"
    )
    np.testing.assert_array_equal(stored(body), np.arange(64))


def test_atomics_return_the_old_value():
    body = "mov.u32 %r1, 2;\natom.global.gpu.relaxed.add.u32 %r20, [%rd1], %r1;\nred.global.add.f32 [%rd2], 0f3F000000;"
    out, count, total = np.zeros(64, "u4"), np.zeros(1, "u4"), np.zeros(1, "f4")
    execute(kernel(f"{body}\n{STORE}", 3), "k", 1, 64, [out, count, total])
    np.testing.assert_array_equal(np.sort(out), np.arange(64) * 2)
    assert (count[0], total[0]) == (128, 32)


def test_a_sum_is_rounded_once():
    a = np.array([1 + 2**-12], "f4")
    c = np.array([-1], "f4")
    result = elementwise("fma.rn.f32 %r20, %r10, %r10, %r11;", a, c, result="f4")
    assert result[0] == np.float32((1 + 2**-12) ** 2 - 1)


def test_division_and_shifts_at_their_edges():
    low = np.array([-(2**31), 7, -7], "i4")
    by = np.array([-1, -2, 2], "i4")
    np.testing.assert_array_equal(
        elementwise("div.s32 %r20, %r10, %r11;", low, by, result="i4"), [-(2**31), -3, -3]
    )
    np.testing.assert_array_equal(
        elementwise("rem.s32 %r20, %r10, %r11;", low, by, result="i4"), [0, 1, -1]
    )
    n = np.array([31, 32, 200], "u4")
    np.testing.assert_array_equal(
        elementwise("shr.s32 %r20, %r10, %r11;", low, n, result="i4"), [-1, 0, -1]
    )
    np.testing.assert_array_equal(
        elementwise("shl.b32 %r20, %r10, %r11;", low, n, result="i4"), [0, 0, 0]
    )


def test_floats_become_integers_within_their_range():
    inputs = np.array([1.5, 2.5, -1.5, np.nan, 1e20, -1e20], "f4")
    result = elementwise("cvt.rni.s32.f32 %r20, %r10;", inputs, result="i4")
    np.testing.assert_array_equal(result, [2, 2, -2, 0, 2**31 - 1, -(2**31)])


def test_tf32_rounds_ties_away_from_zero():
    inputs = np.array([1 + 2**-11, 1 + 2**-12, -(1 + 2**-11)], "f4")
    result = elementwise("cvt.rna.tf32.f32 %r20, %r10;", inputs, result="f4")
    np.testing.assert_array_equal(result, np.float32([1 + 2**-10, 1, -(1 + 2**-10)]))
