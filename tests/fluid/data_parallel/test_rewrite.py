"""Programs with collectives compute on many ranks what the program computes on the whole batch."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
from fluid.data_parallel.build import build
from fluid.data_parallel.rewrite import insert_all_reduces
from fluid.data_parallel.sharding import find_shards
from fluid.data_parallel.split_feeds import split_feed
from tests.fluid.data_parallel.nets import NETS
from tests.fluid.data_parallel.thread_ring import ThreadRank, ThreadRing

pytestmark = pytest.mark.usefixtures("fresh_programs")
STEPS = 3
Strategy = fluid.BuildStrategy


def training(name: str, optimizer: Any) -> tuple[fluid.Variable, list[Any]]:
    """The loss of a network with an optimizer, and batches of 12 rows."""
    make, batch = NETS[name]
    fluid.default_startup_program().random_seed = 5
    loss = make()
    optimizer.minimize(loss)
    draw = np.random.default_rng(1)
    return loss, [batch(draw, 12) for _ in range(STEPS)]


def started() -> fluid.Scope:
    """A scope with the initial values, the same each time."""
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    return scope


def values(scope: fluid.Scope) -> dict[str, Any]:
    return {name: np.array(array) for name, array in scope.arrays().items()}


def alone(loss: fluid.Variable, batches: list[Any]) -> dict[str, Any]:
    scope, executor = started(), fluid.Executor()
    for batch in batches:
        executor.run(feed=batch, scope=scope)
    return values(scope)


def on_ranks(loss: Any, batches: list[Any], ranks: int, strategy: Any) -> list[dict[str, Any]]:
    """The values of every rank after training on equal shares of the batches."""
    built = build(fluid.default_main_program(), strategy, ranks)
    programs = [program.clone() for program in built.programs]
    ring, scopes = ThreadRing(ranks), [started() for _ in range(ranks)]
    executors = [fluid.Executor() for _ in range(ranks)]
    for rank, program in enumerate(programs):
        program.collective = ThreadRank(ring, rank)
    for batch in batches:
        feeds = split_feed(programs[0], batch, ranks)
        ring.run(
            lambda rank, feeds=feeds: executors[rank].run(
                programs[rank], feed=feeds[rank], scope=scopes[rank]
            )
        )
    return [values(scope) for scope in scopes]


def strategy(**fields: Any) -> Any:
    created = Strategy()
    for name, value in fields.items():
        setattr(created, name, value)
    return created


SGD = fluid.optimizer.SGD
CASES = [
    ("digits_mlp", lambda: fluid.optimizer.Adam(0.01)),
    ("lenet_bn", lambda: fluid.optimizer.Momentum(0.05, 0.9)),
    ("resnet_cifar8", lambda: SGD(0.05)),
    ("ctr_wide_deep", lambda: fluid.optimizer.Adagrad(0.05)),
]


@pytest.mark.parametrize(("name", "optimizer"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_equal_shares_train_as_the_whole_batch(name: str, optimizer: Any, ranks: int) -> None:
    loss, batches = training(name, optimizer())
    expected = alone(loss, batches)
    for found in on_ranks(loss, batches, ranks, strategy(sync_batch_norm=True)):
        for each, value in expected.items():
            assert np.allclose(found[each], value, atol=1e-5), each


@pytest.mark.parametrize(("name", "optimizer"), [CASES[0], CASES[3]], ids=["dense", "sparse"])
def test_owned_parameters_have_the_same_values(name: str, optimizer: Any) -> None:
    loss, batches = training(name, optimizer())
    shards = find_shards(fluid.default_main_program(), 2)
    expected = on_ranks(loss, batches, 2, strategy())
    reduced = on_ranks(loss, batches, 2, strategy(reduce_strategy=Strategy.ReduceStrategy.Reduce))
    for rank, found in enumerate(reduced):
        for each, value in expected[rank].items():
            if shards.owner_of_state(each) in (None, rank):
                assert np.allclose(found[each], value, atol=1e-6), each
    assert set(shards.owner.values()) == {0, 1} and shards.state


def test_tables_with_sparse_gradients_have_no_owner() -> None:
    """Ranks exchange rows; an owner would broadcast the whole table."""
    training("ctr_wide_deep", fluid.optimizer.Adagrad(0.1))
    program = fluid.default_main_program()
    owner = find_shards(program, 2).owner
    assert not [name for name in owner if name.startswith("embedding")]
    assert len(owner) == len(program.all_parameters()) - 3


def test_ranks_update_owned_parameters() -> None:
    training("digits_mlp", fluid.optimizer.Adam(0.01))
    built = build(
        fluid.default_main_program(), strategy(reduce_strategy=Strategy.ReduceStrategy.Reduce), 2
    )
    updated = [
        {op.output("ParamOut")[0] for op in program.global_block().ops if op.type == "adam"}
        for program in built.programs
    ]
    assert not updated[0] & updated[1]
    shards = find_shards(fluid.default_main_program(), 2)
    assert updated[0] | updated[1] == set(shards.owner)
    assert built.owners == shards.owners_of_state()
    kinds = [op.type for op in built.programs[0].global_block().ops]
    assert kinds.count("c_reduce_sum") == kinds.count("c_broadcast") == 6
    assert "c_allreduce_sum" not in kinds


def test_a_global_norm_reads_all_gradients_on_all_ranks() -> None:
    clip = fluid.clip.GradientClipByGlobalNorm(0.1)
    loss, batches = training("digits_mlp", fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip))
    expected = alone(loss, batches)
    reduce = strategy(reduce_strategy=Strategy.ReduceStrategy.Reduce)
    for found in on_ranks(loss, batches, 2, reduce):
        for param in fluid.default_main_program().all_parameters():
            assert np.allclose(found[param.name], expected[param.name], atol=1e-6)


def test_owners_hold_about_as_many_bytes_each() -> None:
    training("lenet_bn", SGD(0.1))
    program = fluid.default_main_program()
    owner = find_shards(program, 3).owner
    sizes = {name: np.prod(program.global_block().var(name).shape) for name in owner}
    loads = [sum(sizes[name] for name in owner if owner[name] == rank) for rank in range(3)]
    assert max(loads) <= max(sum(sizes.values()) / 3 * 4 / 3, *sizes.values())


def test_the_ops_are_those_of_the_reference() -> None:
    training("digits_mlp", SGD(0.1))
    program = fluid.default_main_program()
    before = str(program)
    (built, _) = build(program, strategy(), 2).programs
    assert str(program) == before
    ops = built.global_block().ops
    kinds = [op.type for op in ops]
    scale = ops[kinds.index("fill_constant") + 1]
    assert (scale.type, scale.attr("scale"), scale.attr("op_role")) == ("scale", 0.5, 1)
    assert kinds.count("c_allreduce_sum") == 6 and kinds.count("c_sync_comm_stream") == 1
    assert kinds[kinds.index("c_sync_comm_stream") + 1] == "sgd"
    for index, kind in enumerate(kinds):
        if kind == "c_sync_calc_stream":
            assert ops[index - 1].attr("op_role_var") and kinds[index + 1] == "c_allreduce_sum"


def test_rings_alternate_from_the_last_gradient() -> None:
    training("digits_mlp", SGD(0.1))
    program = fluid.default_main_program().clone()
    insert_all_reduces(program, ranks=2, rings=2)
    rings = [
        op.attr("ring_id") for op in program.global_block().ops if op.type == "c_allreduce_sum"
    ]
    assert rings == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("fuse", [True, False])
def test_an_owner_gets_its_gradients_and_sends_its_parameters_in_one_bucket(fuse: bool) -> None:
    """With Reduce: as many messages as owners each way, or as parameters where nothing is fused."""
    loss, batches = training("digits_mlp", fluid.optimizer.Momentum(0.1, 0.9))
    strategy = Strategy()
    strategy.reduce_strategy = Strategy.ReduceStrategy.Reduce
    strategy.fuse_all_reduce_ops = fuse
    built = build(fluid.default_main_program(), strategy, 2)
    schedules = [
        compiler.compile(program, feed=batches[0], fetch=[loss.name]).collectives
        for program in built.programs
    ]
    assert schedules[0] == schedules[1]
    kinds = Counter(line.partition(" ")[0] for line in schedules[0])
    count = len(fluid.default_main_program().all_parameters())
    assert kinds == (
        {"reduce_bucket": 2, "broadcast_bucket": 2}
        if fuse
        else {"c_reduce_sum": count, "c_broadcast": count}
    )
