"""`fluid.layers.collective` records the ops, names and shapes of 1.8.5."""

import pytest

import fluid
from fluid.layers import collective as c

CALLS = {
    "allreduce": (lambda x: c._allreduce(x), "x.tmp_0", (4, 3)),
    "broadcast": (lambda x: c._broadcast(x, 0), "x", (4, 3)),
    "c_allreduce_max": (lambda x: c._c_allreduce(x, reduce_type="max"), "x.c_allreduce_max_0", (4, 3)),
    "c_allreduce_prod": (lambda x: c._c_allreduce(x, x, "prod"), "x", (4, 3)),
    "c_broadcast": (lambda x: c._c_broadcast(x), "x", (4, 3)),
    "c_allgather": (lambda x: c._c_allgather(x, 2), "x.c_allgather_0", (8, 3)),
    "c_reducescatter": (lambda x: c._c_reducescatter(x, 2), "x.c_reducescatter_0", (2, 3)),
    "c_sync_calc_stream": (lambda x: c._c_sync_calc_stream(x), "x", (4, 3)),
    "c_sync_comm_stream": (lambda x: c._c_sync_comm_stream(x, 1), "x", (4, 3)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def variable():
    return fluid.layers.data("x", [4, 3], append_batch_size=False)


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_appends_its_op(kind):
    call, name, shape = CALLS[kind]
    out = call(variable())
    (op,) = fluid.default_main_program().global_block().ops
    assert (op.type, op.input_arg_names, op.output_arg_names) == (kind, ["x"], [name])
    assert (out.name, tuple(out.shape)) == (name, shape)


def test_wrong_arguments_are_rejected():
    x = variable()
    for call in (c._allreduce, c._c_allreduce):
        with pytest.raises(TypeError, match="reduce type can only be"):
            call(x, reduce_type="mean")
    with pytest.raises(
        ValueError, match=r"x.shape\[0\]\(4\) cannot be evenly divided by nranks\(3\)"
    ):
        c._c_reducescatter(x, 3)
    with pytest.raises(TypeError, match="x must be a Variable"):
        c._c_reducescatter(3, 3)
