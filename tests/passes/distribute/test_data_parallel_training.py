"""Ranks that each have a share of the batch end with the parameters of one that has all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import compiler
import fluid
import runtime
from compiler.driver import compile_stages
from compiler.options import Options
from tests.support.rank_world import World

ROWS, STEPS = 12, 3


@dataclass
class Training:
    """A program, its state before the first step, and its loss."""

    program: Any
    state: dict[str, np.ndarray]
    loss: str

    def module(self, options: Options = Options(), target: str = "numpy") -> Any:  # noqa: B008
        return compiler.compile(
            self.program, feed=["x", "y"], fetch=[self.loss], target=target, options=options
        )


def training(ranks: int, where: str = "behind", optimizer: Any = None) -> Training:
    """A small net; with several ranks, gradients are summed and divided by their number.

    The sums stand `behind` all of backward, or `inside`, each behind what computes its gradient.
    """
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = main.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data(name="x", shape=[6], dtype="float32")
        y = fluid.layers.data(name="y", shape=[1], dtype="float32")
        hidden = fluid.layers.fc(fluid.layers.fc(x, 16, act="tanh"), 8, act="relu")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        optimizer = optimizer or fluid.optimizer.Momentum(learning_rate=0.05, momentum=0.9)
        pairs = optimizer.backward(loss)
        if ranks:
            summed(main.global_block(), [g.name for _, g in pairs], ranks, where)
        optimizer.apply_gradients(pairs)
    scope = runtime.Scope()
    with fluid.scope_guard(scope):
        fluid.Executor(fluid.CPUPlace()).run(startup)
        names = [v.name for v in main.list_vars() if v.persistable]
        state = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    return Training(main, state, loss.name)


def summed(block: Any, gradients: list[str], ranks: int, where: str) -> None:
    """Sum gradients over ranks and take the mean."""
    for name in gradients:
        place = len(block.ops)
        if where == "inside":
            place = 1 + max(i for i, op in enumerate(block.ops) if name in op.output_arg_names)
        for kind, attrs in (("c_allreduce_sum", {"ring_id": 0}), ("scale", {"scale": 1 / ranks})):
            named = {"X": [name]}, {"Out": [name]}
            block._insert_op(place, type=kind, inputs=named[0], outputs=named[1],
                             attrs={**attrs, "op_role": 1})  # fmt: skip
            place += 1


def batch(step: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(step)
    x = draw.normal(size=(ROWS, 6)).astype(np.float32)
    return {"x": x, "y": x[:, :1] * 2 + 1}


def trained(made: Training, module: Any, world: World, place: Any = None) -> list[dict[str, Any]]:
    """The state of every rank after some steps on its share of the rows."""

    def work(rank: Any) -> dict[str, Any]:
        state = {name: value.copy() for name, value in made.state.items()}
        step = runtime.load(module, place, state, names={"collective": rank})
        share = slice(rank.number * ROWS // world.size, (rank.number + 1) * ROWS // world.size)
        for number in range(STEPS):
            step({name: value[share] for name, value in batch(number).items()})
        return {name: np.asarray(value) for name, value in state.items()}

    return world.run(work)


def whole() -> dict[str, Any]:
    created = training(0)
    return trained(created, created.module(), World(1))[0]


def assert_equal_the_whole(found: list[dict[str, Any]], far: float = 1e-6) -> None:
    want = whole()
    for state in found:
        for name in want:
            np.testing.assert_allclose(state[name], want[name], rtol=10 * far, atol=far)


SETTINGS = {
    "as the cost model says": Options(),
    "one gradient a bucket": Options(bucket_bytes=1),
    "buckets of 300 bytes": Options(bucket_bytes=300),
    "no overlap": Options(overlap=False),
    "no overlap, small": Options(overlap=False, bucket_bytes=300),
    "spoilt memory": Options(check=1, bucket_bytes=300),
    "no schedule": Options(disable=frozenset({"schedule"}), bucket_bytes=300),
    "no buckets": Options(disable=frozenset({"bucket_all_reduces"})),
    "no parts": Options(disable=frozenset({"reuse_memory"})),
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("where", ["behind", "inside"])
def test_shares_train_as_the_whole_batch(ranks: int, where: str) -> None:
    created = training(ranks, where)
    assert_equal_the_whole(
        trained(created, created.module(Options(bucket_bytes=300)), World(ranks))
    )


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_has_the_same_numbers(options: Options) -> None:
    created = training(2, "inside")
    assert_equal_the_whole(trained(created, created.module(options), World(2)))


@pytest.mark.parametrize("compress", ["fp16", "bf16"])
def test_compressed_gradients_are_near(compress: str) -> None:
    created = training(2, "inside")
    module = created.module(Options(compress=compress, bucket_bytes=300))
    wire = "float16" if compress == "fp16" else "bfloat16"
    assert all(f" {wire} (" in line for line in module.collectives)
    assert_equal_the_whole(trained(created, module, World(2)), 2e-3 if compress == "fp16" else 2e-2)


@pytest.mark.device
def test_shares_train_on_a_device() -> None:
    created = training(2, "inside")
    module = created.module(Options(bucket_bytes=300), "triton")
    assert "_foreach_copy_" not in module.source  # gradients are computed where the bucket is
    assert not [
        line for line in module.source.splitlines() if "download(" in line and "GRAD" in line
    ]
    assert_equal_the_whole(trained(created, module, World(2), runtime.CUDAPlace(0)), 1e-5)


def lines_of(module: Any) -> list[str]:
    body = module.source[module.source.index("def step") :]
    return [line.strip() for line in body[: body.index("return (")].splitlines()]


def test_gradients_are_written_into_their_bucket() -> None:
    module = training(2, "inside").module()
    assert not [line for line in lines_of(module) if "copyto" in line]


def test_starts_are_early_and_waits_late() -> None:
    lines = lines_of(training(2, "inside").module(Options(bucket_bytes=700)))
    starts = [i for i, line in enumerate(lines) if "collective.start" in line]
    waits = [i for i, line in enumerate(lines) if "collective.wait" in line]
    backward = max(i for i, line in enumerate(lines) if "mul_grad" in line)
    updates = [i for i, line in enumerate(lines) if "= momentum(" in line]
    assert len(starts) == len(waits) > 1
    assert starts[0] < backward < waits[0]
    assert min(updates) < waits[-1], "an update waits for its own bucket only"
    for start in starts[:-1]:
        before = next(line for line in reversed(lines[:start]) if not line.startswith("#"))
        assert "_grad" in before, "it starts behind the last gradient it holds"


def test_buckets_break_no_fusion() -> None:
    plain = training(0)
    steps = [
        len(made.plan.steps)
        for made in (
            compile_stages(each.program, feed=["x", "y"], fetch=[each.loss],
                                    target="numpy", options=Options(bucket_bytes=700))
            for each in (plain, training(1, "inside"))
        )
    ]  # fmt: skip
    lines = lines_of(training(1, "inside").module(Options(bucket_bytes=700)))
    kinds = ("pack_bucket(", "start_all_reduce(", "wait_all_reduce(", "unpack_bucket(")
    added = sum(any(f"= {kind}" in line for kind in kinds) for line in lines)
    assert steps[1] == steps[0] + added
