"""What the reference's own tests demand of transpiled programs (its test_dist_transpiler)."""

import math

import pytest

import compiler
import fluid
from fluid.distributed.job import CollectiveJob, DerivedJob, ServerJob, TrainerJob
from fluid.parameter_server import has_placement
from fluid.transpiler.distribute.blocks import block_program
from tests.fluid.transpiler.distribute.server_job import SERVERS, transpiled
from tests.fluid.transpiler.test_distribute_transpiler import config, kinds, op_of, wide

FIRST, SECOND = SERVERS.split(",")
BACKWARD = [
    "mul", "elementwise_add", "elementwise_sub", "square", "mean", "fill_constant", "mean_grad",
    "square_grad", "elementwise_sub_grad", "elementwise_add_grad", "send", "mul_grad",
]  # fmt: skip
TABLE_SIZE, WIDTH = 1000, 64


def test_basic_model():
    transpiler, trainer, startup, _ = transpiled(wide())
    assert {"fc_w", "fc_b", "fc_w.block0", "fc_w.block1"} <= startup.global_block().vars.keys()
    assert not {"fc_w@GRAD", "fc_b@GRAD"} & startup.global_block().vars.keys()
    begin = ["fill_constant", "uniform_random", "recv", "recv", "fetch_barrier", "concat"]
    assert kinds(startup.global_block()) == begin
    end = ["split_byref", "send", "send_barrier", "recv", "recv", "fetch_barrier", "concat"]
    assert kinds(trainer.global_block()) == [*BACKWARD, *end]
    server, server_startup = transpiler.get_pserver_programs(FIRST)
    assert [kinds(block) for block in server.blocks] == [
        ["listen_and_serv"],
        ["sum", "scale", "sgd"],
        ["sum", "scale", "sgd"],
    ]
    begin = ["fill_constant", "fill_constant", "uniform_random"]
    assert kinds(server_startup.global_block()) == begin
    assert server_startup.global_block().var("fc_w.block1").shape == (500, 1000)


def test_large_blocks():
    settings = config(min_block_size=1048576)
    transpiler, trainer, _, _ = transpiled(wide(), config=settings)
    end = ["send", "send_barrier", "recv", "recv", "fetch_barrier"]
    assert kinds(trainer.global_block()) == [*BACKWARD, *end]
    server, startup = transpiler.get_pserver_programs(FIRST)
    assert [kinds(b) for b in server.blocks] == [["listen_and_serv"], ["sum", "scale", "sgd"]]
    assert kinds(startup.global_block()) == ["fill_constant", "fill_constant"]
    other = transpiler.get_startup_program(SECOND)
    assert other.global_block().var("fc_w").shape == (1000, 1000)


def test_no_slices():
    transpiler = transpiled(wide(), config=config(slice_var_up=False))[0]
    startups = [transpiler.get_startup_program(each) for each in (FIRST, SECOND)]
    held = [p.global_block().vars["fc_w"] for p in startups if "fc_w" in p.global_block().vars]
    assert [var.shape for var in held] == [(1000, 1000)]


def test_conditional_schedule():
    def optimizer():
        return fluid.optimizer.SGD(fluid.layers.piecewise_decay([10000, 20000], [1.0, 0.5, 1.0]))

    server, startup = transpiled(wide(optimizer))[0].get_pserver_programs(FIRST)
    assert len(server.blocks) == 7
    assert kinds(server.block(1)).count("conditional_block") == 3
    assert [kinds(server.block(i)) for i in (2, 3, 4)] == [["assign"]] * 3
    assert [kinds(server.block(i)) for i in (5, 6)] == [["sum", "scale", "sgd"]] * 2
    assert op_of(startup, "fill_constant")


def test_decay_of_weights_with_a_piecewise_schedule():
    def optimizer():
        rate = fluid.layers.piecewise_decay([1, 10, 20, 30], [1.0, 0.1, 0.01, 0.001, 0.0001])
        decay = fluid.regularizer.L2Decay(1e-4)
        return fluid.optimizer.Momentum(rate, 0.9, regularization=decay)

    server = transpiled(wide(optimizer))[0].get_pserver_program(FIRST)
    assert len(server.blocks) == 9
    decayed = ["sum", "scale", "scale", "sum", "momentum"]
    assert [kinds(server.block(i)) for i in (7, 8)] == [decayed] * 2


def test_a_server_without_parameters():
    settings = config(slice_var_up=False)
    transpiler = transpiled(wide(bias=False), config=settings)[0]
    with pytest.warns(UserWarning, match="holds no parameter"):
        server = transpiler.get_pserver_program(SECOND)
    assert [kinds(block) for block in server.blocks] == [["listen_and_serv"], []]


def test_asynchronous_schedule():
    def optimizer():
        return fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 100, 0.99, staircase=True))

    settings = config(sync_mode=False)
    created = transpiled(wide(optimizer), config=settings, sync_mode=False)
    transpiler, trainer, startup, _ = created
    begin = [*["fill_constant"] * 4, "uniform_random", "recv", "recv", "fetch_barrier", "concat"]
    assert kinds(startup.global_block()) == begin
    end = ["split_byref", "send", "send", "recv", "recv", "concat"]
    assert kinds(trainer.global_block()) == [*BACKWARD, *end]
    server, server_startup = transpiler.get_pserver_programs(FIRST)
    assert [kinds(block) for block in server.blocks[1:]] == [
        ["sum", "cast", "scale", "floor", "fill_constant", "elementwise_pow", "scale"],
        ["sgd"],
        ["sgd"],
    ]
    begin = [*["fill_constant"] * 4, "uniform_random"]
    assert sorted(kinds(server_startup.global_block())) == sorted(begin)


def test_placement_is_what_loading_asks():
    program = transpiled(wide(lambda: fluid.optimizer.Adam(0.1)))[0].get_pserver_program(FIRST)
    placement = program._parameters_on_pservers
    total: dict[str, int] = {}
    for var in placement.distributed_vars:
        if var.is_slice or var.endpoint == FIRST or var.origin.name == var.slice.name:
            total[var.origin.name] = total.get(var.origin.name, 0) + math.prod(var.slice.shape)
    for var in placement.get_distributed_vars_by_ep(FIRST):
        assert total[var.origin.name] >= math.prod(var.origin.shape)
    block = placement.get_distributed_var_by_slice("fc_w.block1")
    assert (block.offset, block.block_id, block.vtype) == (500000, 1, "Param")
    moments = placement.get_distributed_vars_by_ep(FIRST, "Optimizer")
    assert "fc_w_moment1_0" in {var.origin.name for var in moments}


def pooled(name, ids, *, distributed):
    table = {"is_sparse": True, "is_distributed": distributed, "param_attr": name}
    rows = fluid.layers.embedding(ids, size=[TABLE_SIZE, WIDTH], **table)
    return fluid.layers.sequence_pool(rows, "average")


def with_tables(*, distributed):
    def build():
        ids = [
            fluid.layers.data(n, [1], dtype="int64", lod_level=1)
            for n in ("title", "brand", "user")
        ]
        parts = [pooled("shared_w", each, distributed=distributed) for each in ids[:2]]
        parts.append(pooled("profile_emb", ids[2], distributed=False))
        named = {
            "param_attr": fluid.ParamAttr(name="fc_w"),
            "bias_attr": fluid.ParamAttr(name="fc_b"),
        }
        predicted = fluid.layers.fc(fluid.layers.concat(parts, axis=1), 2, **named)
        label = fluid.layers.data("label", [1], dtype="int64")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
        fluid.optimizer.Adam(0.003).minimize(loss)
        return loss

    return build


def test_sparse_tables_stay_on_servers():
    transpiler, trainer, startup, _ = transpiled(with_tables(distributed=False))
    forward = kinds(trainer.global_block())
    assert forward[:2] == ["distributed_lookup_table"] * 2
    assert forward.count("split_selected_rows") == 2 and forward.count("recv") == 2
    assert kinds(startup.global_block()).count("fake_init") == 2
    server = transpiler.get_pserver_program(FIRST)
    assert [kinds(block) for block in server.blocks[1:]] == [["sum", "scale", "adam"]] * 3


def test_a_distributed_table():
    with pytest.warns(UserWarning, match="updated by sgd, not by adam"):
        transpiler, trainer, _, _ = transpiled(with_tables(distributed=True))
    assert kinds(trainer.global_block()) == [
        "split_ids", "prefetch", "merge_ids", "distributed_lookup_table",
        "sequence_pool", "sequence_pool", "sequence_pool", "concat", "mul", "elementwise_add",
        "cross_entropy2", "mean", "fill_constant", "mean_grad", "cross_entropy_grad2",
        "elementwise_add_grad", "send", "mul_grad", "send", "concat_grad", "sequence_pool_grad",
        "lookup_table_grad", "split_selected_rows", "send", "sequence_pool_grad",
        "lookup_table_grad", "sequence_pool_grad", "lookup_table_grad", "sum", "split_ids", "send",
        "send_barrier", "recv", "recv", "fetch_barrier",
    ]  # fmt: skip
    assert transpiler.has_distributed_lookup_table and transpiler.table_name == "shared_w"
    assert trainer._is_distributed and trainer._is_chief
    assert trainer._distributed_lookup_table == "shared_w"
    assert trainer._endpoints == [FIRST, SECOND]
    server, server_startup = transpiler.get_pserver_programs(FIRST)
    assert [kinds(block) for block in server.blocks[1:]] == [
        ["sum", "scale", "adam"],
        ["sum", "scale", "adam"],
        ["sum", "sgd"],
        ["lookup_sparse_table"],
        ["save"],
    ]
    assert server.global_block().var("shared_w").shape == (TABLE_SIZE // 2, WIDTH)
    serving = op_of(server, "listen_and_serv")
    assert serving.attr("checkpint_block_id") == 5
    assert serving.attr("prefetch_var_name_to_block_id") == ["prefetch_compress_in_tmp_0:4"]
    assert "uniform_random" in kinds(server_startup.global_block())


def test_fake_init():
    def build():
        words = [fluid.layers.data(n, [1], dtype="int64") for n in ("input", "true")]
        tables = [("emb", 8, words[0]), ("emb_w", 8, words[1]), ("emb_b", 1, words[1])]
        rows = [
            fluid.layers.embedding(ids, [10000, size], is_sparse=True, param_attr=name)
            for name, size, ids in tables
        ]
        total = fluid.layers.elementwise_mul(rows[0], rows[1])
        loss = fluid.layers.mean(fluid.layers.elementwise_add(total, rows[2], axis=0))
        rate = fluid.layers.exponential_decay(1.0, 100000, 0.999, staircase=True)
        fluid.optimizer.SGD(rate).minimize(loss)
        return loss

    startup = transpiled(build)[2]
    assert kinds(startup.global_block()).count("fake_init") == 3


def test_a_server_s_block_takes_sparse_rows():
    """A trainer sends values and row numbers; the block updates these rows of its slice."""
    transpiler = transpiled(with_tables(distributed=False), trainers=2)[0]
    server = next(
        program
        for program in map(transpiler.get_pserver_program, (FIRST, SECOND))
        if "profile" in str(op_of(program, "listen_and_serv").inputs)
    )
    names = [name for name in op_of(server, "listen_and_serv").input("X") if "profile" in name]
    block = next(b for b in server.blocks[1:] if names[0] in b.ops[0].input("X"))
    program = block_program(server, block.idx)
    feed = dict.fromkeys(names, (2, WIDTH)) | {f"{name}@ROWS": (2,) for name in names}
    module = compiler.compile(program, feed=dict(sorted(feed.items())), fetch=[])
    assert {each.name for each in module.feeds} == feed.keys()


PADDLE_NAMES = {
    "_is_distributed": False, "_is_chief": False, "_parameters_on_pservers": None, "_endpoints": [],
    "_ps_endpoint": None, "_trainers_endpoints": [], "_distributed_lookup_table": None,
    "_nccl_comm_num": 1, "_use_hierarchical_allreduce": False,
    "_hierarchical_allreduce_inter_nranks": 0, "_fleet_opt": None,
}  # fmt: skip
"""The attributes of a Program of release 1.8.5 about its job, before it is transpiled."""


def test_a_script_may_set_the_settings_of_an_optimizer():
    program = fluid.Program()
    program._fleet_opt = {"stat_var_names": ["x"]}
    assert program._fleet_opt == program.fleet_opt == {"stat_var_names": ["x"]}


def test_paddle_names_read_the_job():
    def differing(program):
        read = {name: getattr(program, name) for name in PADDLE_NAMES}
        return {name: value for name, value in read.items() if value != PADDLE_NAMES[name]}

    program = fluid.Program()
    assert program.job is None and differing(program) == {}
    program.job = CollectiveJob(is_chief=True, endpoints=(FIRST, SECOND), rings=2, group=2)
    assert differing(program) == {
        "_is_distributed": True, "_is_chief": True, "_trainers_endpoints": [FIRST, SECOND],
        "_nccl_comm_num": 2, "_use_hierarchical_allreduce": True,
        "_hierarchical_allreduce_inter_nranks": 2,
    }  # fmt: skip
    transpiler, trainer, startup, _ = transpiled(wide())
    assert trainer.job is startup.job and isinstance(trainer.job, TrainerJob)
    server = transpiler.get_pserver_program(SECOND)
    placement = server._parameters_on_pservers
    assert isinstance(server.job, ServerJob) and placement is trainer._parameters_on_pservers
    assert differing(server) == {
        "_is_distributed": True, "_parameters_on_pservers": placement,
        "_endpoints": [FIRST, SECOND], "_ps_endpoint": SECOND,
    }  # fmt: skip
    program.job = DerivedJob(trainer)
    assert differing(program) == {} and has_placement(program)


def test_clones_are_equal():
    transpiler, trainer, startup, _ = transpiled(wide(lambda: fluid.optimizer.Adam(0.1)))
    for program in (trainer, startup, *transpiler.get_pserver_programs(FIRST)):
        clone = program.clone()
        assert clone.serialize_to_string() == program.serialize_to_string()
        assert clone.job is program.job
        clone.global_block().create_var(name="of_the_clone", shape=[1])
        assert "of_the_clone" not in program.global_block().vars
