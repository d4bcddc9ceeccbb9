"""What layers of control flow compute, option by option."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Variable

pytestmark = pytest.mark.usefixtures("fresh_programs")

CPU = fluid.CPUPlace()


def number(value: float, dtype: str = "int64") -> Variable:
    return layers.fill_constant([1], dtype, value)


def given(*sizes: Any, name: str = "x", dtype: str = "float32", level: int = 0) -> Variable:
    """Declare a value that gradients reach."""
    var = fluid.data(name, list(sizes), dtype, lod_level=level)
    var.stop_gradient = False
    return var


def value(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sequences(lengths: list[int], width: int, seed: int = 0) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(value(sum(lengths), width, seed=seed), [lengths], CPU)


def run(exe: fluid.Executor, fetches: Any, **how: Any) -> list[Any]:
    return exe.run(fetch_list=fetches, **how)


# ---- loops


def test_a_loop_that_does_not_run(exe: fluid.Executor) -> None:
    x = given(3)
    i, n = number(0), number(0)
    kept = layers.while_loop(lambda i, h: i < n, lambda i, h: [i + 1, h * h], [i, x * 2.0])[1]
    (slope,) = fluid.gradients([layers.reduce_sum(kept)], [x])
    out, got = run(exe, [kept, slope], feed={"x": value(3)})
    np.testing.assert_allclose(out, 2 * value(3))
    np.testing.assert_allclose(got, [2, 2, 2])


def test_loop_variables_in_structures(exe: fluid.Executor) -> None:
    n = number(4)
    first = [number(0), {"b": number(1, "float32"), "a": (number(2, "float32"),)}]

    def body(i: Any, held: Any) -> Any:
        held["b"], held["a"] = held["a"][0] + held["b"], (held["b"] * 2.0,)
        return [layers.increment(i), held]

    i, held = layers.while_loop(lambda i, held: i < n, body, first, is_test=True)
    assert [each.tolist() for each in run(exe, [i, held["a"][0], held["b"]])] == [[4], [22], [21]]


def test_a_loop_whose_value_grows(exe: fluid.Executor) -> None:
    i, x = number(0), given(None, 2)
    grown = lambda i, h: [i + 1, layers.concat([h, x * 2.0])]  # noqa: E731
    _, out = layers.while_loop(lambda i, h: i < number(3), grown, [i, x * 1.0])
    for rows in (1, 2):
        (got,) = run(exe, [out], feed={"x": value(rows, 2)})
        np.testing.assert_allclose(got, np.concatenate([value(rows, 2), *[2 * value(rows, 2)] * 3]))


# ---- branches


@pytest.mark.parametrize("mean", [-1.0, 1.0])
def test_cond(exe: fluid.Executor, mean: float) -> None:
    x = given(2)
    positive = layers.reduce_mean(x) > 0.0
    yes = lambda: {"a": x * 2.0, "b": [x]}  # noqa: E731
    no = lambda: {"a": x * 3.0, "b": [x * x]}  # noqa: E731
    out = layers.cond(positive, yes, no)
    (slope,) = fluid.gradients([out["a"], out["b"][0]], [x])
    fed = np.full(2, mean, np.float32)
    a, b, got = run(exe, [out["a"], out["b"][0], slope], feed={"x": fed})
    expected = ([2, 2], [1, 1], [3, 3]) if mean > 0 else ([-3, -3], [1, 1], [1, 1])
    np.testing.assert_allclose([a, b, got], expected)


def test_cond_of_nothing(exe: fluid.Executor) -> None:
    total = layers.create_global_var([1], 0.0, "float32", persistable=True)

    def count() -> None:
        layers.assign(total + 1.0, total)

    assert layers.cond(number(1, "bool"), count) is None
    assert layers.cond(number(1, "bool")) is None
    assert layers.cond(number(0, "bool"), None, lambda: None) is None
    exe.run(fluid.default_startup_program())
    assert [run(exe, [total])[0].tolist() for _ in range(2)] == [[1], [2]]


@pytest.mark.parametrize(("fed", "expected"), [(0.5, 1), (1.5, 2), (2.5, 3)])
@pytest.mark.parametrize("default", [True, False])
def test_case(exe: fluid.Executor, fed: float, expected: float, default: bool) -> None:
    x = given(1)
    constant = lambda result: lambda: number(result, "float32")  # noqa: E731
    pairs = [(x < 1.0, constant(1)), (x < 2.0, constant(2))]
    other = {"default": constant(3)} if default else {}
    out = layers.case(pairs if default else [*pairs, (x < 0.0, constant(3))], **other)
    assert run(exe, [out], feed={"x": np.array([fed], np.float32)})[0] == expected


@pytest.mark.parametrize(
    ("branches", "results"),
    [((0, 1), (10, 11, 11, 11)), ({3: 0, 1: 1}, (10, 11, 10, 10)), ([(2, 0)], (10, 10, 10, 10))],
)
def test_switch_case(exe: fluid.Executor, branches: Any, results: Any) -> None:
    way = given(1, name="way", dtype="int32")
    constant = lambda result: lambda: number(10 + result)  # noqa: E731
    if isinstance(branches, dict):
        functions: Any = {index: constant(result) for index, result in branches.items()}
    elif isinstance(branches, tuple):
        functions = [constant(result) for result in branches]
    else:
        functions = [(index, constant(result)) for index, result in branches]
    out = layers.switch_case(way, functions)
    got = [run(exe, [out], feed={"way": np.array([i], np.int32)})[0][0] for i in range(4)]
    assert tuple(got) == results


def test_switch(exe: fluid.Executor) -> None:
    x, out = given(1), layers.create_global_var([1], 0.0, "float32", persistable=True)
    with layers.Switch() as switch:
        with switch.case(x < 1.0):
            layers.assign(number(1, "float32"), out)
        with switch.case(x < 2.0):
            layers.assign(number(2, "float32"), out)
        with switch.default():
            layers.assign(number(3, "float32"), out)
    exe.run(fluid.default_startup_program())
    feeds = [{"x": np.array([at], np.float32)} for at in (0.5, 1.5, 2.5)]
    assert [run(exe, [out], feed=feed)[0].tolist() for feed in feeds] == [[1], [2], [3]]


@pytest.mark.parametrize("mask", [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_if_else(exe: fluid.Executor, mask: list[int]) -> None:
    x, way = given(4, 3), given(4, 1, name="way", dtype="bool")
    choice = layers.IfElse(way)
    with choice.true_block():
        choice.output(choice.input(x) * 2.0, layers.tanh(choice.input(x)))
    with choice.false_block():
        choice.output(choice.input(x) * 3.0, layers.relu(choice.input(x)))
    first, second = choice()
    feed = {"x": value(4, 3), "way": np.array(mask, bool)[:, None]}
    got = run(exe, [first, second], feed=feed)
    each = value(4, 3)
    np.testing.assert_allclose(got[0], np.where(feed["way"], each * 2, each * 3))
    np.testing.assert_allclose(
        got[1], np.where(feed["way"], np.tanh(each), each.clip(0)), rtol=1e-6
    )


def test_if_else_of_one_block(exe: fluid.Executor) -> None:
    x, way = given(4, 3), given(4, 1, name="way", dtype="bool")
    choice = layers.IfElse(way)
    with choice.true_block():
        choice.output(choice.input(x) * 2.0)
    feed = {"x": value(4, 3), "way": np.array([[1], [0], [0], [1]], bool)}
    (got,) = run(exe, choice(), feed=feed)
    np.testing.assert_allclose(got, value(4, 3)[[0, 3]] * 2)


# ---- recurrent nets


def test_static_rnn(exe: fluid.Executor) -> None:
    """Two states: of a value, and of a variable; the sum of steps, and the largest product."""
    x, begin = given(4, 2, 3), given(2, 3, name="begin")
    rnn = layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(x)
        total = rnn.memory(shape=[-1, 3], batch_ref=x, init_value=0.5)
        product = rnn.memory(init=begin)
        rnn.update_memory(total, total + step)
        rnn.update_memory(product, product * step)
        rnn.output(total + step, product * step)
    feed = {"x": value(4, 2, 3), "begin": value(2, 3, seed=1)}
    sums, products = run(exe, rnn(), feed=feed)
    np.testing.assert_allclose(sums, 0.5 + feed["x"].cumsum(0), rtol=1e-5)
    np.testing.assert_allclose(products, feed["begin"] * feed["x"].cumprod(0), rtol=1e-5)


@pytest.mark.parametrize("lengths", [[2, 4, 1], [3], [1, 1]])
def test_dynamic_rnn(exe: fluid.Executor, lengths: list[int]) -> None:
    """The sum of a sequence, times a value of its own, from a state of its own."""
    x, scale, begin = given(None, 2, level=1), given(None, 2, name="s"), given(None, 2, name="b")
    rnn = layers.DynamicRNN()
    with rnn.block():
        step = rnn.step_input(x)
        total = rnn.memory(init=begin, need_reorder=True)
        steps = rnn.memory(shape=[1], value=1.0)
        after = total + step * rnn.static_input(scale)
        rnn.update_memory(total, after)
        rnn.update_memory(steps, steps + 1.0)
        rnn.output(after, steps)
    feed = {"x": sequences(lengths, 2), "s": value(len(lengths), 2), "b": value(len(lengths), 2)}
    sums, counts = run(exe, rnn(), feed=feed, return_numpy=False)
    assert sums.recursive_sequence_lengths() == [lengths]
    parts = np.split(np.array(feed["x"]), np.cumsum(lengths)[:-1])
    rows = zip(parts, feed["s"], feed["b"], strict=True)
    expected = np.concatenate([b + (part * s).cumsum(0) for part, s, b in rows])
    np.testing.assert_allclose(np.array(sums), expected, rtol=1e-4, atol=1e-6)
    assert np.array(counts).ravel().tolist() == [i + 1 for n in lengths for i in range(n)]


def test_dynamic_rnn_over_sentences(exe: fluid.Executor) -> None:
    """Steps of two levels are sequences themselves; what a step collects has their LoD."""
    x = given(None, 2, level=2)
    rnn = layers.DynamicRNN()
    with rnn.block():
        sentence = rnn.step_input(x)
        before = rnn.memory(shape=[2], value=0.0)
        total = before + layers.sequence_pool(sentence, "sum")
        rnn.update_memory(before, total)
        rnn.output(total, sentence * 2.0)
    lengths = [[2, 1, 3], [1, 2, 3, 1, 1, 2]]
    feed = {"x": fluid.create_lod_tensor(value(10, 2), lengths, CPU)}
    totals, doubled = run(exe, rnn(), feed=feed, return_numpy=False)
    assert totals.recursive_sequence_lengths() == lengths[:1]
    assert doubled.recursive_sequence_lengths() == lengths
    np.testing.assert_allclose(np.array(doubled), 2 * value(10, 2))
    sums = np.add.reduceat(value(10, 2), [0, 1, 3, 6, 7, 8])
    expected = np.concatenate([part.cumsum(0) for part in np.split(sums, [2, 3])])
    np.testing.assert_allclose(np.array(totals), expected, rtol=1e-5)


@pytest.mark.parametrize("loss", [layers.cross_entropy, layers.softmax_with_cross_entropy])
def test_losses_of_each_step_are_sequences(
    exe: fluid.Executor, loss: Callable[[Variable, Variable], Variable]
) -> None:
    """The rows of what a DynamicRNN collects are unknown when compiling, those of labels a size."""
    x, label = given(None, 3, level=1), given(None, 1, name="label", dtype="int64", level=1)
    rnn = layers.DynamicRNN()
    with rnn.block():
        rnn.output(layers.softmax(rnn.step_input(x)))
    a_row = loss(rnn(), label)
    labels = fluid.create_lod_tensor(np.array([[0], [2], [1], [1], [0]]), [[2, 3]], CPU)
    feed, fetches = (
        {"x": sequences([2, 3], 3), "label": labels},
        [a_row, layers.sequence_pool(a_row, "sum")],
    )
    losses, sums = run(exe, fetches, feed=feed, return_numpy=False)
    assert losses.recursive_sequence_lengths() == [[2, 3]]
    expected = np.add.reduceat(np.array(losses), [0, 2])
    np.testing.assert_allclose(np.array(sums), expected, rtol=1e-6)


@pytest.mark.parametrize("steps", range(4))
def test_sequences_that_grow_in_a_loop(exe: fluid.Executor, steps: int) -> None:
    x, i, n = given(None, 2, level=1), number(0), number(steps)
    body = lambda i, h: [i + 1, layers.sequence_concat([h, x])]  # noqa: E731
    grown = layers.while_loop(lambda i, h: i < n, body, [i, layers.scale(x, 1.0)])[1]
    sums = layers.sequence_pool(grown, "sum")
    (slope,) = fluid.gradients([layers.reduce_sum(grown * grown)], [x])
    feed = {"x": sequences([2, 1], 2)}
    got, total, slopes = run(exe, [grown, sums, slope], feed=feed, return_numpy=False)
    first, second = np.split(value(3, 2), [2])
    expected = np.concatenate([first] * (steps + 1) + [second] * (steps + 1))
    assert got.recursive_sequence_lengths() == [[2 * steps + 2, steps + 1]]
    np.testing.assert_allclose(np.array(got), expected)
    each = (steps + 1) * np.concatenate([first.sum(0, keepdims=True), second])
    np.testing.assert_allclose(np.array(total), each, rtol=1e-5)
    np.testing.assert_allclose(np.array(slopes), 2 * (steps + 1) * value(3, 2), rtol=1e-5)


@pytest.mark.parametrize("taken", [False, True])
def test_a_branch_that_changes_the_lod(exe: fluid.Executor, taken: bool) -> None:
    x, other = given(None, 2, level=1), given(None, 2, name="other", level=1)
    held = layers.scale(x, 1.0)
    with layers.Switch() as switch, switch.case(number(taken, "bool")):
        layers.assign(other, held)
    feed = {"x": sequences([2, 1], 2), "other": sequences([1, 3], 2, seed=1)}
    (sums,) = run(exe, [layers.sequence_pool(held, "sum")], feed=feed)
    rows, start = (value(4, 2, seed=1), 1) if taken else (value(3, 2), 2)
    np.testing.assert_allclose(sums, [rows[:start].sum(0), rows[start:].sum(0)], rtol=1e-5)


# ---- arrays and ranks


def test_arrays(exe: fluid.Executor) -> None:
    x, i = given(2, 3), number(0)
    array = layers.create_array("float32")
    layers.array_write(x, i, array)
    layers.array_write(x * 2.0, layers.increment(i, in_place=False), array)
    joined, sizes = layers.tensor_array_to_tensor(array, axis=1)
    stacked, heights = layers.tensor_array_to_tensor(array, axis=0, use_stack=True)
    fetches = [layers.array_length(array), joined, sizes, stacked, heights]
    length, joined, sizes, stacked, heights = run(exe, fetches, feed={"x": value(2, 3)})
    both = [value(2, 3), 2 * value(2, 3)]
    assert (length.tolist(), sizes.tolist(), heights.tolist()) == ([2], [3, 3], [2, 2])
    np.testing.assert_allclose(joined, np.concatenate(both, 1))
    np.testing.assert_allclose(stacked, np.stack(both))


def test_sequences_by_rank(exe: fluid.Executor) -> None:
    x, whole = given(None, 1, level=1), given(3, 1, name="whole")
    table = layers.control_flow.lod_rank_table(x)
    array = layers.control_flow.lod_tensor_to_array(x, table)
    fetches = [
        layers.control_flow.max_sequence_len(table),
        layers.array_read(array, number(1)),
        layers.control_flow.array_to_lod_tensor(array, table),
        layers.reorder_lod_tensor_by_rank(whole, table),
        layers.control_flow.shrink_memory(whole, number(1), table),
    ]
    feed = {"x": sequences([1, 3, 2], 1), "whole": value(3, 1)}
    got = run(exe, fetches, feed=feed, return_numpy=False)
    longest, second, again, ranked, shrunk = map(np.array, got)
    rows = np.array(feed["x"])
    assert longest.tolist() == [3]
    np.testing.assert_allclose(second, rows[[2, 5]])
    np.testing.assert_allclose(again, rows)
    np.testing.assert_allclose(ranked, value(3, 1)[[1, 2, 0]])
    np.testing.assert_allclose(shrunk, value(3, 1)[:2])


def test_sequences_by_rank_of_a_level_that_is_not_declared(exe: fluid.Executor) -> None:
    x = layers.data("x", [10])
    table = layers.control_flow.lod_rank_table(x, level=1)
    array = layers.control_flow.lod_tensor_to_array(x, table)
    fetches = [
        layers.control_flow.max_sequence_len(table),
        layers.control_flow.array_to_lod_tensor(array, table),
    ]
    rows = np.arange(6, dtype="int32")[:, None]
    fed = fluid.create_lod_tensor(rows, [[1, 2], [1, 3, 2]], CPU)
    longest, again = run(exe, fetches, feed={"x": fed}, return_numpy=False)
    assert np.array(longest).tolist() == [3]
    np.testing.assert_array_equal(np.array(again), rows)
    assert again.recursive_sequence_lengths() == fed.recursive_sequence_lengths()


def test_an_assigned_array_is_an_array(exe: fluid.Executor) -> None:
    x = given(3)
    written = layers.array_write(x, number(0))
    assigned = layers.assign(written)
    layers.array_write(x * 2.0, number(0), array=written)
    assert assigned.type == written.type
    out = layers.array_read(assigned, number(0))
    np.testing.assert_allclose(run(exe, [out], feed={"x": value(3)})[0], value(3))


def test_two_ways_and_back(exe: fluid.Executor) -> None:
    x, way = given(4, 2), given(4, 1, name="way", dtype="bool")
    yes, no = layers.control_flow.split_lod_tensor(x, way)
    merged = layers.control_flow.merge_lod_tensor(yes * 2.0, no, x, way)
    feed = {"x": value(4, 2), "way": np.array([[0], [1], [1], [0]], bool)}
    (got,) = run(exe, [merged], feed=feed)
    np.testing.assert_allclose(got, np.where(feed["way"], 2 * value(4, 2), value(4, 2)))


def test_the_gradient_of_one_way(exe: fluid.Executor) -> None:
    x, way = given(4, 2), given(4, 1, name="way", dtype="bool")
    x.stop_gradient = False
    yes, no = layers.control_flow.split_lod_tensor(x, way)
    total = layers.reduce_sum(layers.control_flow.merge_lod_tensor(yes, no, x, way))
    fluid.backward.append_backward(total, no_grad_set={no.name})
    feed = {"x": value(4, 2), "way": np.array([[0], [1], [1], [0]], bool)}
    (got,) = run(exe, [x.name + "@GRAD"], feed=feed)
    np.testing.assert_array_equal(got, [[0, 0], [1, 1], [1, 1], [0, 0]])


# ---- beside the numbers


def declared(like: Variable, name: str) -> Variable:
    block = fluid.default_main_program().current_block()
    return block.create_var(name=name, dtype=like.dtype, shape=like.shape)


def test_functions_of_python(exe: fluid.Executor) -> None:
    x, y = given(2, 3), given(2, 3, name="y")
    outs = [declared(x, "sum"), declared(x, "product")]
    both = lambda a, b: (np.array(a) + b, np.array(a) * np.array(b))  # noqa: E731

    def slopes(a: Any, b: Any, by_sum: Any, by_product: Any) -> Any:
        slope = np.array(by_sum)
        return slope + np.array(by_product) * np.array(b), None

    first, second = layers.py_func(both, [x, y], outs, slopes, outs)
    (slope,) = fluid.gradients([layers.reduce_sum(first + second * 2.0)], [x])
    feed = {"x": value(2, 3), "y": value(2, 3, seed=1)}
    got = run(exe, [first, second, slope], feed=feed)
    expected = [feed["x"] + feed["y"], feed["x"] * feed["y"], 1 + 2 * feed["y"]]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_function_that_only_looks(exe: fluid.Executor) -> None:
    seen: list[Any] = []
    x = given(3)
    layers.py_func(lambda a: seen.append(np.array(a).tolist()), x, None)
    (got,) = run(exe, [x * 2.0], feed={"x": value(3)})
    assert seen == [value(3).tolist()]
    np.testing.assert_allclose(got, 2 * value(3))


def test_print_output(exe: fluid.Executor, capsys: pytest.CaptureFixture[str]) -> None:
    x = given(3)
    layers.Print(x, message="seen", summarize=2, first_n=2, print_tensor_lod=False)
    for _ in range(3):
        run(exe, [x], feed={"x": np.arange(3, dtype=np.float32)})
    once = "seen\nTensor[x]\n\tshape: [3,]\n\tdtype: float32\n\tdata: 0,1,\n"
    assert capsys.readouterr().out == once * 2


# ---- whole programs


def loop_net() -> tuple[Variable, Variable]:
    """A net with a loop and a branch: its output and its loss."""
    x, i, n = given(None, 4), number(0), number(2)
    body = lambda i, h: [i + 1, layers.dropout(layers.fc(h, 4, act="tanh"), 0.5)]  # noqa: E731
    out = layers.while_loop(lambda i, h: i < n, body, [i, layers.fc(x, 4)])[1]
    small = layers.reduce_mean(out) < 0.0
    out = layers.cond(small, lambda: out * 2.0, lambda: layers.tanh(out))
    return out, layers.mean(out)


def test_a_clone_for_test(exe: fluid.Executor) -> None:
    out, loss = loop_net()
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    inside = [op for block in test.blocks for op in block.ops if op.type == "dropout"]
    assert [op.attr("is_test") for op in inside] == [True]
    assert not [op.type for block in test.blocks for op in block.ops if "_grad" in op.type]
    exe.run(fluid.default_startup_program())
    feed = {"x": value(5, 4)}
    first, again = (exe.run(test, feed=feed, fetch_list=[out])[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_a_saved_net_with_blocks(exe: fluid.Executor, tmp_path: Any) -> None:
    out, _ = loop_net()
    exe.run(fluid.default_startup_program())
    test = fluid.default_main_program().clone(for_test=True)
    feed = {"x": value(5, 4)}
    expected = exe.run(test, feed=feed, fetch_list=[out])[0]
    fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe, test)
    with fluid.scope_guard(fluid.Scope()):
        net, names, targets = fluid.io.load_inference_model(str(tmp_path), exe)
        assert (names, len(net.blocks)) == (["x"], 4)
        got = exe.run(net, feed=feed, fetch_list=targets)[0]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("build", [loop_net, lambda: (None, layers.mean(growing()))])
def test_learning(exe: fluid.Executor, build: Callable[[], Any]) -> None:
    _, loss = build()
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe.run(fluid.default_startup_program())
    losses = [run(exe, [loss], feed={"x": value(8, 4)})[0].item() for _ in range(20)]
    assert losses[-1] < losses[0] - 0.1


def growing() -> Variable:
    """An array written in one loop and read in another."""
    x, i, j, n = given(None, 4), number(0), number(0), number(3)
    array = layers.array_write(layers.fc(x, 4), i)
    more = layers.less_than(i, n)
    with layers.While(more).block():
        after = layers.fc(layers.array_read(array, i), 4, act="tanh")
        layers.increment(i)
        layers.array_write(after, i, array)
        layers.less_than(i, n, cond=more)
    total = layers.fc(x, 4)
    add = lambda j, h: [j + 1, h + layers.array_read(array, j)]  # noqa: E731
    return layers.while_loop(lambda j, h: j < n, add, [j, total])[1]
