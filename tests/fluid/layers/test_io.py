"""A server and a client written with `ListenAndServ`, `Send` and `Recv`, over a socket.

As the reference's own test_dist_train demands; and its client's ops one by one.
"""

import threading

import numpy as np
import pytest

import fluid
from fluid import parameter_server
from fluid.layers import ops
from fluid.layers.io import ListenAndServ, Recv, Send
from tests.support.ports import free_endpoints

SHAPE = [32, 32]


def constant(name, value, persistable=False):
    """A variable of the default main program that an op of it fills."""
    block = fluid.default_main_program().global_block()
    var = block.create_var(name=name, shape=SHAPE, dtype="float32", persistable=persistable)
    fluid.initializer.Constant(value)(var, block)
    return var


def server_program(endpoint, optimizer_mode=False):
    created = fluid.Program()
    with fluid.program_guard(created, fluid.Program()):
        x = constant("x", 1.0)
        served = ListenAndServ(endpoint, ["x"], optimizer_mode=optimizer_mode)
        with served.do():
            out = created.global_block().create_var(name="scaled", shape=SHAPE, dtype="float32")
            ops._scale(x=x, scale=10.0, out=out)
    return created


def test_send_and_recv_round_trip():
    endpoint = free_endpoints(1)[0]
    program, scope = server_program(endpoint), fluid.Scope()
    run = {"target": fluid.Executor().run, "args": (program,), "kwargs": {"scope": scope}}
    thread = threading.Thread(**run, daemon=True)
    thread.start()
    client = fluid.Program()
    with fluid.program_guard(client, fluid.Program()):
        x = constant("x", 2.3)
        scaled = constant("scaled", 0.0)
        Send(endpoint, [x])
        result = Recv(endpoint, [scaled])
    executor = fluid.Executor()
    for _ in range(2):
        (value,) = executor.run(client, fetch_list=result, scope=fluid.Scope())
        np.testing.assert_allclose(value, np.full(SHAPE, 23.0), rtol=1e-6)
    parameter_server.complete(client, executor)
    thread.join(20)
    assert not thread.is_alive()


def test_with_optimizer_mode_it_takes_the_gradients_of_its_optimizers():
    created = fluid.Program()
    with fluid.program_guard(created, fluid.Program()):
        block = created.global_block()
        for name in ("w", "w@GRAD", "rate"):
            block.create_var(name=name, shape=[1], dtype="float32", persistable=name != "w@GRAD")
        with ListenAndServ("127.0.0.1:6174", [], fan_in=3).do():
            inputs = {"Param": "w", "Grad": "w@GRAD", "LearningRate": "rate"}
            created.current_block().append_op("sgd", inputs=inputs, outputs={"ParamOut": "w"})
    (op,) = created.global_block().ops
    assert (op.input("X"), op.attr("Fanin")) == (["w@GRAD"], 3)
    assert [int(each) for each in op.attr("optimize_blocks")] == [1]


def test_each_variable_has_a_server():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        several = [constant(name, 0.0) for name in "abc"]
        with pytest.raises(ValueError, match="one for each of 3 variables"):
            Send("a:1,b:1", several)
        with pytest.raises(TypeError, match="get_vars"):
            Recv("a:1", several[0])
        Send("a:1,b:1,a:1", several)
        kinds = [op.type for op in fluid.default_main_program().global_block().ops[-2:]]
        assert kinds == ["send", "send_barrier"]
