"""`recompute`: bytes saved, unchanged results, and the message for a budget that is too low."""

import numpy as np
import pytest

import fluid
import runtime
from compiler.driver import compile_stages
from compiler.options import Options, budget_bytes

ROWS = 24


def deep(fluid):
    """Convolutions with norms and a residual, dropout, and a layer norm."""
    image = fluid.data("image", [None, 3, 8, 8])
    label = fluid.data("label", [None, 1], "int64")
    hidden = image
    for _ in range(3):
        created = fluid.layers.conv2d(hidden, 8, 3, padding=1, bias_attr=False)
        created = fluid.layers.batch_norm(created, act="relu")
        created = fluid.layers.conv2d(created, 8, 3, padding=1, bias_attr=False)
        created = fluid.layers.batch_norm(created)
        same = hidden.shape[1] == 8
        hidden = fluid.layers.relu(created + hidden if same else created)
    hidden = fluid.layers.dropout(fluid.layers.layer_norm(hidden), 0.3, seed=5)
    output = fluid.layers.fc(hidden, 5, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(output, label))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return loss


def trained(budget):
    """Losses of three steps, the state after them, the stages, and the peak of the values."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = deep(fluid)
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    state = {name: array.copy() for name, array in scope.arrays().items()}
    options = Options(memory_budget=budget, typical=ROWS)
    stages = compile_stages(main, feed=["image", "label"], fetch=[loss], options=options)
    step = runtime.load(stages.module, params=state, poison=True)
    rng = np.random.RandomState(0)
    feed = {"image": rng.rand(ROWS, 3, 8, 8).astype("float32")}
    feed["label"] = rng.randint(0, 5, (ROWS, 1)).astype("int64")
    return [step(feed)[0].copy() for _ in range(3)], state, stages, peak(stages.plan)


def peak(plan):
    """Bytes of the values alive at the fullest step."""
    sizes = dict.fromkeys(plan.dims, ROWS)
    lives = runtime.loader.buffer_lifetimes(plan.buffers, sizes)
    return max(sum(x.size for x in lives if x.start <= s < x.stop) for s in range(len(plan.steps)))


@pytest.mark.parametrize("budget", ["75%", 1])
def test_numbers_stay_the_same_to_the_bit_and_fewer_bytes_are_alive(budget):
    losses, state, _, before = trained(None)
    again, moved, stages, after = trained(budget)
    assert after < 0.8 * before
    assert "batch_norm_again" in stages.module.source
    np.testing.assert_array_equal(again, losses)
    for name, array in state.items():
        np.testing.assert_array_equal(moved[name], array, err_msg=name)


def test_budget_too_low_names_bytes_and_op():
    stages = trained(1)[2]
    results = [note for note in stages.context.missed if note.name == "recompute"]
    assert len(results) == 1
    assert "bytes are live here, the budget is 1" in results[0].reason


def test_without_a_budget_nothing_is_computed_again():
    assert "batch_norm_again" not in trained(None)[2].module.source


@pytest.mark.parametrize("budget", ["lots", "10 apples", "-3MB", ""])
def test_a_budget_is_bytes_or_a_part(budget):
    with pytest.raises(ValueError, match="memory_budget is"):
        Options(memory_budget=budget)


def test_the_environment_returns_a_budget():
    assert Options.from_env({"FLUID_MEMORY_BUDGET": "300MB"}).memory_budget == "300MB"
    assert budget_bytes("300MB", 0) == 300_000_000
