"""DistributeTranspiler: arguments and errors, placement, what servers hold, in whatever order."""

import math
import subprocess
import sys

import numpy as np
import pytest

import fluid
from fluid.transpiler.distribute_transpiler import VarBlock, slice_variable
from fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler
from tests.fluid.transpiler.distribute.server_job import SERVERS, built, transpiled

FIRST, SECOND = SERVERS.split(",")


def wide(optimizer=None, **named):
    """Return what builds a layer of 1000 x 1000, cut in two over two servers."""

    def build():
        x, y = fluid.layers.data("x", [1000]), fluid.layers.data("y", [1])
        weight = {
            "param_attr": fluid.ParamAttr(name="fc_w"),
            "bias_attr": named.get("bias", "fc_b"),
        }
        loss = fluid.layers.mean(
            fluid.layers.square_error_cost(fluid.layers.fc(x, 1000, **weight), y)
        )
        (optimizer() if optimizer else fluid.optimizer.SGD(0.1)).minimize(loss)
        return loss

    return build


def config(**fields):
    created = fluid.DistributeTranspilerConfig()
    for name, value in fields.items():
        setattr(created, name, value)
    return created


def kinds(block):
    return [op.type for op in block.ops]


def op_of(program, kind):
    return next(op for block in program.blocks for op in block.ops if op.type == kind)


# ---- slices and placement


@pytest.mark.parametrize(
    ("shape", "count", "least", "sizes"),
    [
        ((1000, 1000), 2, 8192, [500000] * 2),
        ((1000, 1000), 3, 8192, [334000, 334000, 332000]),
        ((1000,), 2, 8192, [1000]),
        ((28, 784), 10, 8192, [10976] * 2),
        ((28, 784), 10, 1024, [2352] * 9 + [784]),
        ((8, 1020), 10, 1024, [2040] * 4),
        ((800, 10), 10, 1024, [1150] * 6 + [1100]),
        ((800, 10), 10, 8192, [8000]),
        ((6, 33, 33, 33), 10, 8192, [35937] * 6),
        ((16384,), 2, 8192, [8192] * 2),
        ((20000,), 3, 8192, [10000] * 2),
        ((100001,), 4, 8192, [25001] * 3 + [24998]),
        ((7, 4096), 4, 8192, [12288, 12288, 4096]),
        ((5, 100000), 4, 8192, [200000, 200000, 100000]),
        ((3, 100000), 4, 8192, [100000] * 3),
        ((8192, 2), 4, 8192, [8192] * 2),
        ((512, 3, 3, 64), 7, 8192, [42624] * 6 + [39168]),
    ],
)
def test_slices_are_whole_rows(shape, count, least, sizes):
    var = fluid.Program().global_block().create_var(name="v", shape=shape, dtype="float32")
    wanted = [str(VarBlock("v", i, size)) for i, size in enumerate(sizes)]
    assert slice_variable([var], count, least) == wanted
    assert sum(sizes) == math.prod(shape)


def placed(plan):
    return {part.name: part.endpoint for shards in plan.shards for part in shards.slices}


def test_blocks_go_round_the_servers():
    plan = transpiled(wide())[0].sharding_plan
    assert placed(plan) == {"fc_b": FIRST, "fc_w.block0": SECOND, "fc_w.block1": FIRST}


def test_blocks_go_by_the_hash_of_their_name():
    def plan():
        return transpiled(wide(), config=config(split_method=fluid.transpiler.HashName))[0]

    first, second = plan(), plan()
    assert placed(first.sharding_plan) == placed(second.sharding_plan)
    sends = [op for op in first.get_trainer_program(False).global_block().ops if op.type == "send"]
    where = placed(first.sharding_plan)
    for op in sends:
        names = [name.replace("@GRAD", "").replace(".trainer_0", "") for name in op.input("X")]
        assert op.attr("epmap") == [where[name] for name in names]


def test_several_slices_on_one_server_remember_apart():
    """A server may hold two blocks of one parameter: their moments must not be one."""

    class FirstOnly(fluid.transpiler.RoundRobin):
        def dispatch(self, varlist):
            return [self.eps[0] for _ in varlist]

    build = wide(lambda: fluid.optimizer.Adam(0.1))
    transpiler = transpiled(build, config=config(split_method=FirstOnly))[0]
    adams = [
        op
        for block in transpiler.get_pserver_program(FIRST).blocks
        for op in block.ops
        if op.type == "adam" and op.input("Param")[0].startswith("fc_w")
    ]
    for slot in ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow"):
        assert len({op.input(slot)[0] for op in adams}) == 2


def test_without_slicing_numpy_s_generator_is_left_alone():
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    transpiler = transpiled(wide(), config=config(slice_var_up=False))[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    names = set(placed(transpiler.sharding_plan))
    assert names == {"fc_w", "fc_b"}


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: fluid.optimizer.Lamb(0.1),
        lambda: fluid.optimizer.LarsMomentum(0.1, 0.9),
        lambda: fluid.optimizer.Dpsgd(0.1),
    ],
)
def test_what_needs_norms_of_whole_parameters_is_not_cut(optimizer):
    assert set(placed(transpiled(wide(optimizer))[0].sharding_plan)) == {"fc_w", "fc_b"}


def test_state_of_any_optimizer_has_the_shape_of_the_slice():
    build = wide(lambda: fluid.optimizer.RMSProp(0.1, centered=True))
    server = transpiled(build)[0].get_pserver_program(FIRST)
    op = next(
        op
        for b in server.blocks
        for op in b.ops
        if op.input_names and "fc_w" in str(op.inputs) and op.type == "rmsprop"
    )
    for slot in ("Param", "MeanGrad", "MeanSquare", "Moment"):
        assert server.global_block().var(op.input(slot)[0]).shape == (500, 1000)


# ---- getters


def test_getters_are_pure_and_in_any_order():
    def text(program):
        return program.to_string(True)

    calls = [
        lambda t: text(t.get_trainer_program(wait_port=False)),
        lambda t: text(t.get_pserver_program(FIRST)),
        lambda t: text(t.get_startup_program(SECOND)),
        lambda t: "".join(map(text, t.get_pserver_programs(SECOND))),
    ]
    build = wide(lambda: fluid.optimizer.Adam(0.1))
    one, other = transpiled(build), transpiled(build)
    forth = [call(one[0]) for call in calls]
    back = [call(other[0]) for call in reversed(calls)]
    assert forth == list(reversed(back))
    assert [call(one[0]) for call in calls] == forth
    assert one[0].get_trainer_program(wait_port=False) is one[1]


def test_programs_do_not_hang_on_hash_seeds():
    script = (
        "from tests.fluid.transpiler.test_distribute_transpiler import *\n"
        "t, main, startup, _ = transpiled(wide(lambda: fluid.optimizer.Adam(0.1)))\n"
        "made = [main, startup, *t.get_pserver_programs(FIRST), *t.get_pserver_programs(SECOND)]\n"
        "import hashlib\n"
        "print(hashlib.sha256(b''.join(p.serialize_to_string() for p in made)).hexdigest())\n"
    )
    run = [sys.executable, "-c", script]
    result = {
        subprocess.check_output(run, text=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."})
        for seed in ("1", "2")
    }
    assert len(result) == 1


def test_the_user_s_startup_program_keeps_its_shapes():
    transpiler, _, startup, _ = transpiled(wide())
    transpiler.get_pserver_programs(FIRST)
    assert op_of(startup, "uniform_random").attr("shape") == [1000, 1000]


def test_slices_start_as_the_whole_does():
    _, startup, _ = built(wide())
    alone, executor = fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=alone)
    transpiler = transpiled(wide())[0]
    parts = []
    for endpoint, name in ((SECOND, "fc_w.block0"), (FIRST, "fc_w.block1")):
        scope = fluid.Scope()
        executor.run(transpiler.get_startup_program(endpoint), scope=scope)
        parts.append(np.array(scope.find_var(name).get_tensor()))
    whole = np.array(alone.find_var("fc_w").get_tensor())
    np.testing.assert_array_equal(np.concatenate(parts), whole)


# ---- errors


def test_getters_before_transpile_report_what_to_call():
    for call in (
        lambda t: t.get_trainer_program(),
        lambda t: t.get_pserver_program(FIRST),
        lambda t: t.get_pserver_programs(FIRST),
        lambda t: t.get_startup_program(FIRST),
    ):
        with pytest.raises(RuntimeError, match="call transpile"):
            call(fluid.DistributeTranspiler())


def test_transpiling_twice_is_an_error():
    transpiler, main, startup, _ = transpiled(wide())
    with pytest.raises(RuntimeError, match="transpiled already"):
        transpiler.transpile(0, program=main, pservers=SERVERS, startup_program=startup)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"trainer": 2}, ValueError, "from 0 to 1"),
        ({"trainer": -1}, ValueError, "from 0 to 1"),
        ({"trainers": 0}, ValueError, "at least 1"),
        ({"trainers": "a:1,b:1"}, TypeError, "must be the number of trainers"),
        ({"pservers": ""}, ValueError, "is no endpoint"),
        ({"pservers": 5}, TypeError, "separated by commas"),
        ({"pservers": "a:1,a:1"}, ValueError, "twice"),
        ({"shards": 1}, TypeError, "has no argument 'shards'"),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        transpiled(wide(), **arguments)


def test_nothing_is_rewritten_where_transpiling_fails():
    main, startup, _ = built(
        lambda: fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 2))
    )
    before = main.to_string(True), startup.to_string(True)
    with pytest.raises(ValueError, match="updates no parameter"):
        fluid.DistributeTranspiler().transpile(0, program=main, startup_program=startup)
    assert (main.to_string(True), startup.to_string(True)) == before
    assert not getattr(main, "_is_distributed", False)


@pytest.mark.parametrize("sync", [True, False])
def test_program_with_gradients_but_no_parameter_sends_nothing(sync):
    def no_parameter():
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.data("x", [4])))
        fluid.optimizer.SGD(0.1).minimize(loss)

    main, startup, _ = built(no_parameter)
    transpiler = fluid.DistributeTranspiler()
    servers = "127.0.0.1:6174,127.0.0.1:6175"
    transpiler.transpile(0, main, servers, 2, sync_mode=sync, startup_program=startup)
    trainer = [op.type for op in transpiler.get_trainer_program(wait_port=False).global_block().ops]
    assert not {"send", "recv"}.intersection(trainer)
    with pytest.warns(UserWarning, match="holds no parameter"):
        server, initial = transpiler.get_pserver_programs("127.0.0.1:6174")
    assert [[op.type for op in block.ops] for block in server.blocks] == [["listen_and_serv"], []]
    assert not initial.global_block().ops


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"min_block_size": 8191}, ValueError, "at least 8192"),
        ({"split_method": fluid.transpiler.RoundRobin([])}, TypeError, "derived from PSDispatcher"),
        ({"split_method": dict}, TypeError, "derived from PSDispatcher"),
        ({"mode": "ring"}, ValueError, "pserver, nccl2, collective"),
    ],
)
def test_settings_are_checked(fields, error, message):
    with pytest.raises(error, match=message):
        fluid.DistributeTranspiler(config(**fields))


def test_an_unknown_server_is_an_error():
    with pytest.raises(ValueError, match="is the endpoint of no server"):
        transpiled(wide())[0].get_pserver_program("127.0.0.1:9")


def test_exclusive_settings():
    settings = fluid.DistributeTranspilerConfig()
    assert settings.sync_mode and not settings.runtime_split_send_recv
    with pytest.raises(ValueError, match="exclude each other"):
        settings.runtime_split_send_recv = True
    settings.sync_mode = False
    settings.runtime_split_send_recv = True
    for name in ("sync_mode", "runtime_split_send_recv"):
        with pytest.raises(ValueError, match="can't be None"):
            setattr(settings, name, None)
    with pytest.raises(ValueError, match="exclude each other"):
        settings.sync_mode = True


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"mode": "collective"}, {"trainers": "a:1,b:1"}, "invalid collective_mode"),
        ({"collective_mode": "local_sgd"}, {"trainers": "a:1"}, "at least two"),
        ({"collective_mode": "local_sgd"}, {"trainers": 2}, "list the endpoints"),
        ({"collective_mode": "local_sgd"}, {"trainers": "c:1,b:1"}, "none of the trainers"),
        ({"collective_mode": "local_sgd"}, {"trainers": "b:1,a:1"}, "trainer 0 has endpoint b:1"),
        ({"mode": "nccl2"}, {"trainers": 2}, "list the endpoints"),
        (
            {"mode": "nccl2", "use_hierarchical_allreduce": True},
            {"trainers": "a:1,b:1"},
            "hierarchical_allreduce_inter_nranks",
        ),
    ],
)
def test_modes_without_servers_check_endpoints(fields, arguments, message):
    main, startup, _ = built(wide())
    created = config(**{"mode": "collective", "wait_port": False} | fields)
    inputs = {"program": main, "startup_program": startup, "current_endpoint": "a:1"}
    with pytest.raises(ValueError, match=message):
        fluid.DistributeTranspiler(created).transpile(0, **inputs | arguments)
    assert "c_allreduce_sum" not in kinds(main.global_block())


def test_endpoints_are_checked_before_whether_a_program_is_new():
    main, startup = fluid.Program(), fluid.Program()
    programs = {"program": main, "startup_program": startup, "trainers": "127.0.0.1:6174"}
    modes = ("single_process_multi_thread", "grad_allreduce")
    settings = [config(mode="collective", collective_mode=mode) for mode in modes]
    fluid.DistributeTranspiler(settings[0]).transpile(0, **programs)
    with pytest.raises(ValueError, match="at least two endpoints"):
        fluid.DistributeTranspiler(settings[1]).transpile(0, **programs)
    with pytest.raises(RuntimeError, match="transpiled already"):
        fluid.DistributeTranspiler(settings[0]).transpile(0, **programs)
    with pytest.raises(ValueError, match="at least two endpoints"):
        fluid.transpiler.collective.LocalSGD(0).transpile(
            fluid.Program(), fluid.Program(), 0, "a:1", "a:1", wait_port=False
        )


def hashed_words():
    """A loss of n-grams whose table the gradient op of their lookups updates."""
    words = fluid.layers.data("words", [1], dtype="int32", lod_level=1)
    updated, fixed = fluid.ParamAttr(name="table", learning_rate=0), fluid.ParamAttr(name="filter")
    sizes = {"num_emb": 8, "space_len": 20, "pyramid_layer": 3, "rand_len": 4}
    rates = {"drop_out_percent": 0.0, "is_training": True, "use_filter": False, "lr": 0.5}
    lists = {"white_list_len": 0, "black_list_len": 0, "seed": 1}
    attrs = {"param_attr": updated, "param_attr_wl": fixed, "distribute_update_vars": ["table"]}
    arguments = {**sizes, **rates, **lists, **attrs}
    vectors = fluid.contrib.layers.search_pyramid_hash(words, **arguments)
    loss = fluid.layers.reduce_sum(vectors)
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def test_trainers_exchange_what_gradient_ops_update():
    main, startup, _ = built(hashed_words)
    geo = config(sync_mode=False, runtime_split_send_recv=True, geo_sgd_mode=True)
    numbers = {"pservers": "127.0.0.1:6174", "trainers": 2, "startup_program": startup}
    with pytest.raises(ValueError, match="'table' is updated by the gradient op"):
        fluid.DistributeTranspiler().transpile(0, main, **numbers)
    transpiler = fluid.DistributeTranspiler(geo)
    transpiler.transpile(0, main, **numbers)
    *_, sent, received = main.global_block().ops
    assert (sent.type, sent.inputs["X"], received.outputs["Out"]) == ("send", ["table"], ["table"])
    server, initial = transpiler.get_pserver_programs("127.0.0.1:6174")
    assert server.blocks[1].ops[0].inputs["X"] == ["table", "table.delta"]
    assert "table" in initial.global_block().ops[0].writes()


# ---- older keywords, programs of other modes


def test_keywords_of_older_releases():
    dispatch = {"slice_var_up": False, "split_method": fluid.transpiler.HashName}
    transpiler = transpiled(wide(), **dispatch)[0]
    assert set(placed(transpiler.sharding_plan)) == {"fc_w", "fc_b"}
    assert transpiler.config.split_method is fluid.transpiler.HashName
    main, startup, _ = built(wide())
    settings = config(mode="nccl2", wait_port=False)
    inputs = {"program": main, "startup_program": startup, "current_endpoint": "a:1"}
    fluid.DistributeTranspiler(settings).transpile(0, workers="a:1,b:1", **inputs)
    assert op_of(startup, "gen_nccl_id").attr("trainers") == ["a:1", "b:1"]


def test_one_synchronous_trainer_sends_what_the_server_waits_for():
    transpiler, main, _, _ = transpiled(wide(), trainers=1)
    sent = {name for op in main.global_block().ops if op.type == "send" for name in op.input("X")}
    waited = {
        name
        for endpoint in (FIRST, SECOND)
        for name in op_of(transpiler.get_pserver_program(endpoint), "listen_and_serv").input("X")
    }
    assert sent == waited


def test_either_argument_or_settings_make_a_job_asynchronous():
    for settings, argument in ((True, False), (False, True)):
        created = config(sync_mode=settings)
        transpiler, main, _, _ = transpiled(wide(), config=created, sync_mode=argument)
        assert "send_barrier" not in kinds(main.global_block())
        server = transpiler.get_pserver_program(FIRST)
        assert op_of(server, "listen_and_serv").attr("sync_mode") is False


def test_a_global_norm_is_of_the_merged_gradient_or_of_what_is_sent():
    def optimizer():
        clip = fluid.clip.GradientClipByGlobalNorm(0.5)
        return fluid.optimizer.SGD(0.1, grad_clip=clip)

    server = transpiled(wide(optimizer))[0].get_pserver_program(FIRST)
    serving = op_of(server, "listen_and_serv")
    clip = server.block(serving.attr("clip_block_id"))
    assert "sum_over_servers" in kinds(clip)
    assert int(serving.attr("optimize_blocks")[0]) == clip.idx
    main = transpiled(wide(optimizer), sync_mode=False)[1]
    sends = [op for op in main.global_block().ops if op.type == "send"]
    assert [op.attrs.get("clip_norm") for op in sends] == [0.5, None]
    assert sends[0].output("Scale") == sends[1].input("Factor")


def test_set_gradient_clip_clips_before_sending():
    def build():
        x = fluid.layers.data("x", [8])
        loss = fluid.layers.mean(fluid.layers.fc(x, 4))
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    block = transpiled(build)[1].global_block()
    assert kinds(block).index("elementwise_mul") < kinds(block).index("send")
    assert [op.attr("op_role") for op in block.ops if op.type == "elementwise_mul"] == [1, 1]


def test_slices_of_geo_are_described_as_in_release_1_8():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [None, 1], "int64")
        rows = fluid.embedding(ids, [9000, 4], is_sparse=True, param_attr="emb")
        loss = fluid.layers.mean(fluid.layers.fc(rows, 5))
        fluid.optimizer.SGD(0.1).minimize(loss)
    transpiler = GeoSgdTranspiler(config(sync_mode=False, geo_sgd_mode=True))
    ends = "127.0.0.1:6174,127.0.0.1:6175"
    transpiler.transpile(0, main, ends, 2, startup_program=startup)
    assert transpiler.vars_info == transpiler._get_vars_info() == {
        "emb": {
            "var_names": ["emb.block0", "emb.block1"], "sections": ["4500", "4500"],
            "epmap": ends.split(","), "is_sparse": ["True"],
        },
        "fc_0.b_0": {
            "var_names": ["fc_0.b_0"], "sections": ["5"], "epmap": ["127.0.0.1:6174"],
            "is_sparse": ["False"],
        },
        "fc_0.w_0": {
            "var_names": ["fc_0.w_0"], "sections": ["4"], "epmap": ["127.0.0.1:6175"],
            "is_sparse": ["False"],
        },
    }  # fmt: skip


def test_geo_trainers_update_and_exchange_parameters():
    settings = config(sync_mode=False, geo_sgd_mode=True)
    transpiler, main, _, _ = transpiled(wide(), config=settings, sync_mode=False)
    assert kinds(main.global_block())[-6:] == ["sgd", "sgd", "send", "recv", "send", "recv"]
    server = transpiler.get_pserver_program(FIRST)
    assert op_of(server, "listen_and_serv").attr("distributed_mode") == 3
    assert [kinds(block) for block in server.blocks[1:]] == [["sum"], ["sum"]]


def test_delay_compensation_is_of_asynchronous_jobs():
    with pytest.raises(ValueError, match="enable_dc_asgd"):
        transpiled(wide(), config=config(enable_dc_asgd=True))
    settings = config(enable_dc_asgd=True, sync_mode=False)
    transpiler = transpiled(wide(), config=settings, sync_mode=False)[0]
    main, startup = transpiler.get_pserver_programs(FIRST)
    corrected = ["elementwise_sub", "elementwise_mul", "elementwise_mul", "elementwise_add"]
    assert kinds(main.block(1)) == ["ref_by_trainer_id", *corrected, "sgd"]
    assert kinds(startup.global_block()).count("assign") == 4
