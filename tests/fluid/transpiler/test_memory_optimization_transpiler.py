"""`memory_optimize` and `release_memory`: the renames of release 1.5, and no number changed.

The exact names are those of release 1.5; feeds and fetches are protected, which it did not do.
"""

from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.driver import feed_shapes
from compiler.errors import CompileError, VerifyError
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.conversion.reused_names import REUSES, reuses
from compiler.ir.text.printer import show
from fluid.transpiler import memory_optimization_transpiler as transpiler
from fluid.transpiler.flow import sources
from fluid.transpiler.units import kept_names
from tests.fluid.layers import control_flow_models as control_flow
from tests.golden import zoo as golden
from tests.support.nets import timed, zoo

pytestmark = pytest.mark.usefixtures("fresh_programs")

LINE = [
    ("square_error_cost_0.tmp_0@GRAD", "square_error_cost_0.tmp_1"),
    ("fc_0.tmp_1@GRAD", "square_error_cost_0.tmp_0"),
    ("fc_0.tmp_0@GRAD", "square_error_cost_0.tmp_1@GRAD"),
]
"""The renames of a line with SGD, at level 0."""


FEED = {"x": np.ones((2, 13), "float32"), "y": np.ones((2, 1), "float32")}


def line() -> fluid.Variable:
    """A line through 13 features, with SGD."""
    loss = golden.fit_a_line(fluid)[0]
    fluid.optimizer.SGD(0.05).minimize(loss)
    return loss


def network() -> fluid.Variable:
    """Three layers, 32-64-64-10, with SGD."""
    hidden = fluid.layers.data("x", [32])
    for size, act in ((64, "relu"), (64, "relu"), (10, None)):
        hidden = fluid.layers.fc(hidden, size, act=act)
    loss = fluid.layers.mean(hidden)
    fluid.optimizer.SGD(0.05).minimize(loss)
    return loss


def main() -> fluid.Program:
    return fluid.default_main_program()


def renames(program: fluid.Program) -> list[tuple[str, str]]:
    ops = [op for block in program.blocks for op in block.ops]
    return [(reuse.name, reuse.storage) for op in ops for reuse in reuses(op)]


def deleted(program: fluid.Program) -> list[tuple[str, list[str]]]:
    """What is deleted, and behind which op."""
    ops = program.global_block().ops
    pairs = pairwise(ops)
    return [(before.type, op.input("X")) for before, op in pairs if op.type == "delete_var"]


# ---- the worked examples


def test_the_renames_of_a_line() -> None:
    line()
    fluid.memory_optimize(main())
    assert renames(main()) == LINE


def test_gradients_that_optimizers_read_move_only_if_asked() -> None:
    line()
    fluid.memory_optimize(main(), skip_grads=False)
    assert renames(main()) == [*LINE, ("fc_0.b_0@GRAD", "mean_0.tmp_0@GRAD")]
    update = main().global_block().ops[-2]
    assert (update.input("Grad"), update.attr("op_role_var")) == (
        ["mean_0.tmp_0@GRAD"],
        ["fc_0.b_0", "mean_0.tmp_0@GRAD"],
    )


def test_level_1_takes_more_room_than_it_needs() -> None:
    network()
    exact, larger = main().clone(), main().clone()
    fluid.memory_optimize(exact)
    fluid.memory_optimize(larger, level=1)
    assert len(renames(exact)) == 7
    assert set(renames(larger)) - set(renames(exact)) == {("fc_2.tmp_0", "fc_1.tmp_1")}


def test_a_chain_of_concats() -> None:
    """The reference's own test: gradients of all concats but the last share older names."""
    word = fluid.layers.data("word", [1], dtype="int64")
    embed = fluid.layers.embedding
    first, *others = [embed(word, [64, 16], param_attr="emb") for _ in range(6)]
    for other in others:
        first = fluid.layers.concat([first, other])
    fluid.backward.append_backward(fluid.layers.mean(first))
    fluid.memory_optimize(main())
    known = main().global_block().vars
    assert "concat_4.tmp_0@GRAD" in known
    assert [name for name in map("concat_{}.tmp_0@GRAD".format, range(4)) if name in known] == []


def test_the_log_is_that_of_release_1_5(capsys: pytest.CaptureFixture[str]) -> None:
    line()
    fluid.memory_optimize(main(), print_log=True)
    assert capsys.readouterr().out.splitlines()[:2] == [
        "!!! 0,  square_error_cost_0.tmp_0@GRAD(-1, 1) => square_error_cost_0.tmp_1(-1, 1), "
        "cache idx 0, pool size 2",
        "!!! 1,  fc_0.tmp_1@GRAD(-1, 1) => square_error_cost_0.tmp_0(-1, 1), "
        "cache idx 0, pool size 3",
    ]


def test_the_deletions_of_a_line() -> None:
    """Those of the reference, but for the feeds x and y, which it deletes as well."""
    line()
    behind = [
        ("mean_grad", ["mean_0.tmp_0@GRAD", "square_error_cost_0.tmp_1"]),
        ("square_grad", ["square_error_cost_0.tmp_0", "square_error_cost_0.tmp_1@GRAD"]),
        ("elementwise_sub_grad", ["fc_0.tmp_1", "square_error_cost_0.tmp_0@GRAD"]),
        ("elementwise_add_grad", ["fc_0.tmp_0", "fc_0.tmp_1@GRAD"]),
        ("mul_grad", ["fc_0.tmp_0@GRAD"]),
        ("sgd", ["fc_0.b_0@GRAD"]),
        ("sgd", ["fc_0.w_0@GRAD"]),
    ]
    anything = kept_names(main(), (), gradients=False, edges=False)
    all_of_it = [(s.op.type, names) for s, names in transpiler.deletions(main(), anything)]
    fluid.release_memory(main())
    assert deleted(main()) == behind
    behind[2][1].append("y")
    behind[4][1].append("x")
    assert all_of_it == behind


# ---- numbers


def optimized(program: fluid.Program, *steps: str) -> fluid.Program:
    """A copy rewritten by "0" and "1", the levels, and "release"; each step twice is as once."""
    program = program.clone()
    for step in steps:
        call: Callable[..., None] = fluid.memory_optimize
        inputs: dict[str, Any] = {} if step == "release" else {"level": int(step)}
        call = fluid.release_memory if step == "release" else call
        call(program, **inputs)
        once = program.to_string(True)
        call(program, **inputs)
        assert program.to_string(True) == once, f"{step} is not idempotent"
    return program


def trained(
    program: fluid.Program, fetch: list[Any], batches: list[Any], startup: Any = None
) -> list[Any]:
    """What some steps fetch, from one start."""
    exe = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup or fluid.default_startup_program())
        results = [exe.run(program, b, fetch, return_numpy=False) for b in batches]
    return [np.asarray(each) for step in results for each in step]


def without_marks(program: fluid.Program) -> fluid.Program:
    """A program that only has the names that are left, as one that was read from a file."""
    program = program.clone()
    for op in [op for block in program.blocks for op in block.ops]:
        op.attrs.pop(REUSES, None)
    return program


GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
WAYS = [("0",), ("release", "1")]
SMALL = [name for name, entry in zoo.MODELS.items() if entry.small != zoo.QUICK]
SMALL = [name for name in SMALL if name not in ("transformer", "transformer_classifier")]
PAPERS = ["resnet50", "se_resnext50", "unet", "transformer"]
TRAINED = ["lenet_bn", "tagger_gru_crf", "while_power"]
"""Of the others what is compiled is compared, which takes a tenth of the time."""
COMPILED = [*PAPERS, *(name for name in SMALL if name not in TRAINED)]


@pytest.mark.parametrize("name", TRAINED)
def test_no_number_of_a_training_changes(name: str) -> None:
    """Bit for bit: the loss, the output and some gradients over five steps."""
    settings = zoo.small(name)
    recorded = zoo.build(fluid, name, **settings)
    random = np.random.RandomState(0)
    draws = (zoo.draw(name, random, 4, **settings) for _ in range(5))
    batches = [timed.fed(fluid, batch) for batch in draws]
    gradients = [name for name in temporaries(recorded.main) if name.endswith("@GRAD")]
    fetch = [recorded.loss, recorded.output, *gradients[:: len(gradients) // 3 + 1]]
    want = trained(recorded.main, fetch, batches, recorded.startup)
    for way in WAYS:
        program = optimized(recorded.main, *way)
        actual = trained(program, fetch, batches, recorded.startup)
        for got, wanted in zip(actual, want, strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=str(way))
    bare = without_marks(optimized(recorded.main, "1", "release"))
    losses = trained(bare, [recorded.loss], batches, recorded.startup)
    np.testing.assert_array_equal(losses, want[:: len(fetch)])


@pytest.mark.parametrize("name", COMPILED)
def test_what_is_compiled_of_a_network_is_the_same(name: str) -> None:
    """To the letter, whatever is fetched; `bench/transpilers.py` compares numbers of these."""
    settings = zoo.small(name)
    recorded = zoo.build(fluid, name, **settings)
    feed = zoo.draw(name, np.random.RandomState(0), 4, **settings)
    shapes = feed_shapes(recorded.main, [*feed])
    fetch = [*temporaries(recorded.main)][::50]
    program = optimized(recorded.main, "1", "release")
    assert len(renames(program)) > (50 if name in PAPERS else 0)
    want = show(to_graph(recorded.main, shapes, fetch))
    assert show(to_graph(program, shapes, fetch)) == want


@pytest.mark.parametrize("model", control_flow.MODELS, ids=lambda model: model.__name__)
def test_loops_and_branches_train_as_before(model: Callable[[Any], Any]) -> None:
    """Nested ones too, and those that write over what gradients read."""
    fluid.default_startup_program().random_seed = 7
    loss = model(fluid)
    fluid.optimizer.SGD(0.1).minimize(loss)
    steps = range(control_flow.STEPS)
    batches = [control_flow.feed(model.__name__, step, sequences) for step in steps]
    want = trained(main(), [loss], batches)
    program = optimized(main(), "1", "release")
    np.testing.assert_array_equal(trained(program, [loss], batches), want)
    np.testing.assert_array_equal(trained(without_marks(program), [loss], batches), want)


def sequences(rows: Any, lengths: list[int]) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


def temporaries(program: fluid.Program) -> list[str]:
    """The tensors of the main block that live in one run only."""
    kind = fluid.core.VarDesc.VarType.LOD_TENSOR
    variables = program.global_block().vars.values()
    return [
        variable.name
        for variable in variables
        if variable.type == kind and not variable.persistable
    ]


@pytest.mark.parametrize("name", ["transformer_encoder", "sentiment_stacked_lstm", "while_power"])
def test_saved_models_are_equal(name: str, exe: Any) -> None:
    """Models of the reference, between their feed and fetch ops."""
    with np.load(GOLDEN / f"{name}__io.npz") as recorded:
        feed: dict[str, Any] = {n[3:]: recorded[n] for n in recorded.files if n.startswith("in.")}
        for each in (n for n in feed if f"lod:in.{n}" in recorded.files):
            feed[each] = sequences(feed[each], recorded[f"lod:in.{each}"].tolist())
    program, _, fetches = fluid.io.load_inference_model(str(GOLDEN / f"{name}__separate"), exe)
    (want,) = exe.run(program, feed, fetches)
    fluid.release_memory(program)
    fluid.memory_optimize(program, level=1)
    assert any(op.type == "delete_var" for op in program.global_block().ops)
    np.testing.assert_array_equal(exe.run(program, feed, fetches)[0], want)
    np.testing.assert_array_equal(exe.run(without_marks(program), feed, fetches)[0], want)


def test_blocks_of_loops_are_optimized_too() -> None:
    loss = golden.MODELS["while_power"](fluid)[0]
    fluid.optimizer.SGD(0.05).minimize(loss)
    fluid.release_memory(main())
    inner = [op.type for block in main().blocks[1:] for op in block.ops]
    assert "delete_var" in inner


# ---- what is protected


def test_feeds_losses_and_results_stay() -> None:
    """Release 1.2 reuses feeds, and every release overwrites what is to be fetched."""
    x = fluid.layers.data("x", [8])
    hidden = fluid.layers.fc(x, 8, bias_attr=False)
    twice = fluid.layers.scale(hidden, 2.0)
    result = fluid.layers.scale(twice, 2.0)
    fluid.memory_optimize(main())
    assert renames(main()) == []
    fluid.release_memory(main())
    assert deleted(main()) == [("scale", [hidden.name]), ("scale", [twice.name])]
    assert main().global_block().has_var(result.name)


def test_what_skip_opt_set_lists_stays() -> None:
    line()
    some = main().global_block().var("fc_0.tmp_1@GRAD")
    fluid.memory_optimize(main(), skip_opt_set={some, "square_error_cost_0.tmp_1"})
    assert all(name not in pair for pair in renames(main()) for name in (some.name,))
    assert main().global_block().has_var(some.name)
    fluid.release_memory(main(), skip_opt_set=[some])
    assert all(some.name not in names for _, names in deleted(main()))


def test_everything_can_still_be_fetched_by_its_name(exe: Any) -> None:
    """In the reference such a variable is missing, or has the values of another one."""
    fluid.default_startup_program().random_seed = 7
    loss = line()
    random = np.random.default_rng(0)
    feed = {name: random.random((4, n), "float32") for name, n in (("x", 13), ("y", 1))}
    names = temporaries(main())
    want = trained(main(), names, [feed])
    program = optimized(main(), "0", "release")
    assert len(renames(program)) == 3
    for name, wanted in zip(names, want, strict=True):
        np.testing.assert_array_equal(trained(program, [name], [feed])[0], wanted, err_msg=name)
    assert trained(program, [loss], [feed]) == trained(main(), [loss], [feed])


# ---- what comes after


def test_what_is_appended_afterwards_finds_every_variable(exe: Any) -> None:
    """Renames are reverted: a new op may read a variable whose name was reused."""
    loss = network()
    hidden = main().global_block().var("fc_1.tmp_1")
    fluid.memory_optimize(main(), level=1)
    assert not main().global_block().has_var("fc_2.tmp_0")
    message = r"test_memory_optimization_transpiler.py:\d+: an op is appended after memory_optimize, .* undone"
    with pytest.warns(UserWarning, match=message):
        total = fluid.layers.reduce_sum(hidden)
    assert renames(main()) == [] and main().global_block().has_var("fc_2.tmp_0")
    x = np.ones((2, 32), "float32")
    got, wanted, _ = trained(main(), [total, hidden, loss], [{"x": x}])
    assert got.item() == pytest.approx(wanted.sum(), rel=1e-5)


def test_a_saved_model_has_its_own_names(exe: Any, tmp_path: Any) -> None:
    network()
    predicted = main().global_block().var("fc_2.tmp_1")
    feed = {"x": np.random.default_rng(0).random((2, 32), "float32")}
    exe.run(fluid.default_startup_program())
    (want,) = exe.run(main().clone(for_test=True), feed, [predicted])
    fluid.memory_optimize(main(), level=1)
    fluid.release_memory(main())
    fluid.io.save_inference_model(str(tmp_path), ["x"], [predicted], exe, main())
    program, _, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
    np.testing.assert_array_equal(exe.run(program, feed, fetches)[0], want)
    (pruned,) = exe.run(main().clone(for_test=True), feed, [predicted], use_prune=True)
    np.testing.assert_array_equal(pruned, want)


def test_an_op_that_reads_what_was_deleted(exe: Any) -> None:
    line()
    fluid.release_memory(main())
    cost = main().global_block().var("square_error_cost_0.tmp_1")
    late = fluid.layers.reduce_sum(cost)
    exe.run(fluid.default_startup_program())
    message = r"'square_error_cost_0\.tmp_1' was deleted by a delete_var .*test_memory"
    with pytest.raises(CompileError, match=message) as caught:
        exe.run(feed=FEED, fetch_list=[late])
    assert "skip_opt_set" in str(caught.value) and "test_memory_optimization_transpiler.py" in str(
        caught.value
    )


def test_state_cannot_be_deleted_by_a_run(exe: Any) -> None:
    loss = line()
    main().global_block().append_op("delete_var", {"X": "fc_0.w_0"})
    exe.run(fluid.default_startup_program())
    with pytest.raises(CompileError, match=r"'fc_0\.w_0' is persistable"):
        exe.run(feed=FEED, fetch_list=[loss])


# ---- arguments


@pytest.mark.parametrize("call", [fluid.memory_optimize, fluid.release_memory])
def test_errors_name_the_argument_and_leave_the_program(call: Callable[..., None]) -> None:
    line()
    before = main().to_string(True)
    with pytest.raises(TypeError, match=r"'input_program' in .* must be Program, but received str"):
        call("main")
    with pytest.raises(ValueError, match="only support skip_opt_set as set or list"):
        call(main(), skip_opt_set="fc_0.tmp_0")
    with pytest.raises(TypeError, match="should be Variable or str, but is int"):
        call(main(), skip_opt_set={3})
    with pytest.warns(UserWarning, match=r"no variable 'fc_0.tmp0'; did you mean 'fc_0.tmp_0'"):
        call(main().clone(), skip_opt_set={"fc_0.tmp0"})
    assert main().to_string(True) == before


def test_there_are_two_levels() -> None:
    with pytest.raises(ValueError, match=r"only support opt_level 0 or 1 .* received 2"):
        fluid.memory_optimize(main(), level=2)


# ---- the check that always runs


def test_a_clobbered_value_is_found() -> None:
    line()
    before = sources(main())
    ops = main().global_block().ops
    ops[2]._rename_output("square_error_cost_0.tmp_0", "fc_0.tmp_1")
    ops[3]._rename_input("square_error_cost_0.tmp_0", "fc_0.tmp_1")
    with pytest.raises(VerifyError, match="op 7 of the program read"):
        transpiler.expect_same_flow(before, main())


def test_renames_that_the_check_lets_pass_change_no_number() -> None:
    """Of all pairs of temporaries, right and wrong; the check knows no plan, only the program."""
    fluid.default_startup_program().random_seed = 7
    loss = line()
    before, want = sources(main()), trained(main(), [loss], [FEED, FEED])
    names = [name for name in temporaries(main()) if name not in (*FEED, loss.name)]
    passed = 0
    for old, new in permutations(names, 2):
        program = main().clone()
        program.global_block()._rename_var(old, new)
        if sources(program) == before:
            passed += 1
            np.testing.assert_array_equal(trained(program, [loss], [FEED, FEED]), want)
    assert 20 < passed < len(names) * (len(names) - 1) - 20


def test_a_value_that_a_gradient_of_a_loop_reads_is_watched() -> None:
    loss = golden.MODELS["while_power"](fluid)[0]
    fluid.optimizer.SGD(0.05).minimize(loss)
    before = sources(main())
    ops = main().global_block().ops
    hidden = next(op.output("Out")[0] for op in ops if op.type == "tanh")
    late = next(at for at, op in enumerate(ops) if op.type == "mean")
    like = main().global_block().var(hidden)
    main().global_block().create_var(name="spoiled", shape=like.shape, dtype=like.dtype)
    main().global_block().add_op("assign", {"X": ["x"]}, {"Out": ["spoiled"]}, {}, "", late)
    watched = sources(main())
    ops[late]._rename_output("spoiled", hidden)
    assert len(watched) == len(before) + 1 and sources(main()) != watched


def test_a_damaged_mark_is_rejected(exe: Any) -> None:
    loss = line()
    main().global_block().ops[0]._set_attr(REUSES, ["a", "b", "x", "0", "0"])
    with pytest.raises(CompileError, match=r"mul: .* in its attribute 'op_reuses' is malformed"):
        exe.run(feed=FEED, fetch_list=[loss])
