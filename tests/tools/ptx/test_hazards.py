"""Hazards between threads: found where an order is missing, and not where it is there."""

import numpy as np
import pytest

from tests.tools.ptx.support import kernel
from tools.ptx import Memory
from tools.ptx.errors import Hazard, MemoryFault
from tools.ptx.hazards import Hazards
from tools.ptx.launch import kernels, launch

TABLE = ".shared .align 16 .b8 table[1024];\n"
PLACES = """
mov.u32 %r1, table;
shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2;
xor.b32 %r4, %r2, {other};
add.u32 %r5, %r1, %r4;
mul.wide.u32 %rd2, %r0, 4;
add.u64 %rd3, %rd0, %rd2;
mov.u32 %r9, %ctaid.x;
"""
"""%r3 is the thread's own word in shared memory, %r5 that of another, %rd3 its word of p0."""
WRITE, READ = "st.shared.b32 [%r3], %r0;\n", "ld.shared.b32 %r6, [%r5];\n"
OUT = "st.global.b32 [%rd3], %r6;\n"
CTA, WARP = "bar.sync 0;\n", "bar.warp.sync 0xffffffff;\n"


def watched(body, threads=64, grid=1, other=128):
    """The words of p0 after a launch in which hazards are looked for."""
    (program,) = kernels(kernel(PLACES.format(other=other) + body, 1, TABLE)).values()
    memory, out = Memory(), np.zeros(threads, "u4")
    address = memory.add("p0", out)
    with Hazards().launch(program, memory) as seen:
        parameters = {"p0": address.to_bytes(8, "little")}
        launch(seen, (grid, 1, 1), (threads, 1, 1), 0, parameters, memory)
    return out


def test_a_barrier_orders_the_threads_of_a_cta():
    assert watched(WRITE + CTA + READ + OUT).tolist() == [*range(32, 64), *range(32)]
    with pytest.raises(Hazard, match=r"k, PTX line \d+: CTA 0, thread 0 .* is read after another"):
        watched(WRITE + READ + OUT)


def test_a_barrier_of_a_warp_orders_its_threads_alone():
    assert watched(WRITE + WARP + READ + OUT, other=4)[:4].tolist() == [1, 0, 3, 2]
    with pytest.raises(Hazard, match="is read after another thread wrote it"):
        watched(WRITE + WARP + READ + OUT)


def test_a_write_after_a_read_needs_a_barrier():
    fill, again = WRITE + CTA + READ, "st.shared.b32 [%r3], %r6;\n"
    watched(fill + CTA + again)
    with pytest.raises(Hazard, match="is written after another thread read it"):
        watched(fill + again)
    same = "mov.u32 %r7, 5;\nst.shared.b32 [%r3], %r7;\n"
    with pytest.raises(Hazard, match="is written after another thread read it"):
        watched(same + CTA + READ + same)


def test_the_same_value_again_is_no_hazard():
    same = "mov.u32 %r7, 5;\nst.shared.b32 [%r3], %r7;\nst.shared.b32 [%r5], %r7;\n"
    watched(same)
    with pytest.raises(Hazard, match="is written after another thread wrote it"):
        watched(WRITE + "st.shared.b32 [%r5], %r0;\n")


def test_one_instruction_writes_one_value():
    watched("mov.u32 %r7, 5;\nst.shared.b32 [%r1], %r7;\n")
    with pytest.raises(Hazard, match="is written with several values by one instruction"):
        watched("st.shared.b32 [%r1], %r0;\n")


COPY = """
cp.async.ca.shared.global [%r3], [%rd3], 4;
cp.async.commit_group;
"""
WAIT = "cp.async.wait_group 0;\n"


def test_copies_are_written_when_they_are_waited_for():
    watched(COPY + WAIT + CTA + READ + OUT)
    watched(COPY + CTA + WAIT + CTA + READ + OUT)
    for missing in (COPY + WAIT + READ, COPY + CTA + WAIT + READ):
        with pytest.raises(Hazard, match="is read after another thread wrote it"):
            watched(missing + OUT)
    with pytest.raises(Hazard, match="is written after another thread wrote it"):
        watched(COPY + CTA + "st.shared.b32 [%r5], %r0;\n" + WAIT)


def test_an_access_out_of_bounds_is_no_hazard():
    with pytest.raises(MemoryFault, match="address 0x8000000000000000 is"):
        watched("mov.u64 %rd3, 0x8000000000000000;\n" + OUT)


def test_shared_memory_is_written_before_it_is_read():
    with pytest.raises(Hazard, match="is shared memory that nobody wrote"):
        watched(READ + OUT)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("st.global.b32 [%rd3], %r9;\n", "is written by several CTAs"),
        ("ld.global.b32 %r6, [%rd3];\nadd.u32 %r6, %r6, 1;\n" + OUT, "after another CTA read it"),
        ("ld.global.b32 %r6, [%rd0];\n@%p1 st.global.b32 [%rd3], %r0;\n", "CTA read it"),
        ("@%p1 st.global.b32 [%rd0], %r0;\nld.global.b32 %r6, [%rd0];\n", "CTA wrote it"),
    ],
)
def test_ctas_of_a_launch_have_no_order(body, what):
    second = "setp.eq.u32 %p2, %r9, 0;\nsetp.eq.u32 %p3, %r0, 0;\nmov.u32 %r0, 5;\n"
    body = second + "and.pred %p1, %p2, %p3;\n" + body
    watched(body)
    with pytest.raises(Hazard, match=what):
        watched(body, grid=2)


def test_ctas_may_write_the_same_value_and_add_by_atomics():
    watched("mov.u32 %r7, 7;\nst.global.b32 [%rd3], %r7;\n", grid=2)
    watched("atom.global.add.u32 %r6, [%rd3], %r9;\n", grid=2)


def test_ctas_are_compared_between_atomics_that_order_them():
    own, other = "st.global.b32 [%rd3], %r9;\n", "@%p1 st.global.b32 [%rd3], %r9;\n"
    order = "atom.global.acq_rel.gpu.add.u32 %r6, [%rd3], 1;\n"
    first = "setp.eq.u32 %p1, %r9, 0;\n"
    watched(first + order + other + order, grid=2)
    with pytest.raises(Hazard, match="is written by several CTAs"):
        watched(first + own + order, grid=2)
    with pytest.raises(Hazard, match="is written after another CTA read it"):
        watched(
            first + order + "ld.global.b32 %r6, [%rd3];\nadd.u32 %r9, %r6, 1;\n" + other, grid=2
        )
    watched(own + order.replace("acq_rel", "release"), grid=2)
