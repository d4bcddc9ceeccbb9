"""Nets with control flow, built with whatever fluid is passed in; each returns its loss.

The programs of 1.8.5 for them are recorded in tests/data/control_flow.json, so this file keeps to
what Python 3.7 reads, too.
"""

import zlib

import numpy as np


def _counter(L, last):
    """A counter at 0, and the number it counts to."""
    return L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", last)


def while_with_array(fluid):
    """A loop that reads and writes an array, and a value around it."""
    L = fluid.layers
    h = L.fc(L.data("x", [5]), 5, act="tanh")
    i, n = _counter(L, 3)
    array = L.array_write(h, i)
    cond = L.less_than(i, n)
    with L.While(cond).block():
        before = L.array_read(array, i)
        after = L.elementwise_add(L.scale(before, 0.5), h)
        L.increment(i)
        L.array_write(after, i, array)
        L.less_than(i, n, cond=cond)
    return L.mean(L.array_read(array, n))


def while_that_sums(fluid):
    """A loop that writes over a variable around it."""
    L = fluid.layers
    h = L.fc(L.data("x", [4]), 4)
    i, n = _counter(L, 3)
    total = L.fill_constant([1], "float32", 0.0)
    total.stop_gradient = False
    cond = L.less_than(i, n)
    with L.While(cond).block():
        L.assign(L.elementwise_add(total, L.mean(L.tanh(h))), total)
        L.increment(i)
        L.less_than(i, n, cond=cond)
    return L.mean(total)


def while_in_while(fluid):
    L = fluid.layers
    i, n = _counter(L, 2)
    array = L.array_write(L.fc(L.data("x", [4]), 4), i)
    cond = L.less_than(i, n)
    with L.While(cond).block():
        j, m = L.fill_constant([1], "int64", 0), n
        inner = L.array_write(L.array_read(array, i), j)
        more = L.less_than(j, m)
        with L.While(more).block():
            after = L.fc(L.array_read(inner, j), 4, act="tanh")
            L.increment(j)
            L.array_write(after, j, inner)
            L.less_than(j, m, cond=more)
        result = L.array_read(inner, m)
        L.increment(i)
        L.array_write(result, i, array)
        L.less_than(i, n, cond=cond)
    return L.mean(L.array_read(array, n))


def cond_in_while(fluid):
    L = fluid.layers
    i, n = _counter(L, 3)
    one = L.fill_constant([1], "int64", 1)
    array = L.array_write(L.fc(L.data("x", [4]), 4), i)
    cond = L.less_than(i, n)
    with L.While(cond).block():
        before = L.array_read(array, i)
        first = L.less_than(i, one)
        after = L.cond(first, lambda: L.tanh(before), lambda: L.fc(before, 4))
        L.increment(i)
        L.array_write(after, i, array)
        L.less_than(i, n, cond=cond)
    return L.mean(L.array_read(array, n))


def while_in_cond(fluid):
    L = fluid.layers
    x = L.data("x", [4])
    h = L.fc(x, 4)
    large = L.less_than(L.fill_constant([1], "float32", 0.3), L.reduce_mean(x))

    def loop():
        i, n = _counter(L, 3)
        array = L.array_write(h, i)
        cond = L.less_than(i, n)
        with L.While(cond).block():
            after = L.fc(L.array_read(array, i), 4, act="tanh")
            L.increment(i)
            L.array_write(after, i, array)
            L.less_than(i, n, cond=cond)
        return L.array_read(array, n)

    return L.mean(L.cond(large, loop, lambda: L.scale(h, 2.0)))


def while_loop_with_op(fluid):
    """A loop whose counter is updated by an op that reads two variables."""
    L = fluid.layers
    h = L.fc(L.data("x", [4]), 4)
    i, n = _counter(L, 3)

    def body(i, h):
        following = L.elementwise_add(i, L.fill_constant([1], "int64", 1))
        return [following, L.fc(h, 4, act="tanh")]

    return L.mean(L.while_loop(lambda i, h: L.less_than(i, n), body, [i, h])[1])


def while_loop_with_number(fluid):
    L = fluid.layers
    h = L.fc(L.data("x", [4]), 4)
    i, n = _counter(L, 3)
    body = lambda i, h: [i + 1, L.fc(h, 4, act="tanh")]  # noqa: E731
    return L.mean(L.while_loop(lambda i, h: L.less_than(i, n), body, [i, h])[1])


def while_loop_in_place(fluid):
    L = fluid.layers
    h = L.fc(L.data("x", [4]), 4)
    i, n = _counter(L, 3)
    body = lambda i, h: [L.increment(i), L.fc(h, 4, act="tanh")]  # noqa: E731
    return L.mean(L.while_loop(lambda i, h: L.less_than(i, n), body, [i, h])[1])


def cond(fluid):
    L = fluid.layers
    x = L.data("x", [4])
    h, k = L.fc(x, 4), L.fc(x, 4)
    large = L.less_than(L.fill_constant([1], "float32", 0.3), L.reduce_mean(x))
    out = L.cond(
        large,
        lambda: L.elementwise_add(h, k),
        lambda: L.fc(L.elementwise_mul(h, h), 4),
    )
    return L.mean(L.elementwise_add(out, h))


def cond_in_cond(fluid):
    L = fluid.layers
    x = L.data("x", [4])
    h, k = L.fc(x, 4), L.fc(x, 4)
    third, mean = L.fill_constant([1], "float32", 0.3), L.reduce_mean(x)
    large, small = L.less_than(third, mean), L.less_than(mean, third)

    def inner():
        return L.cond(small, lambda: L.tanh(h), lambda: L.elementwise_mul(h, k))

    return L.mean(L.cond(large, inner, lambda: L.tanh(k)))


def case(fluid):
    L = fluid.layers
    x = L.data("x", [4])
    h, mean = L.fc(x, 4), L.reduce_mean(x)
    one, two = (L.fill_constant([1], "float32", value) for value in (1.0, 2.0))
    pairs = [
        (L.less_than(mean, one), lambda: L.tanh(h)),
        (L.less_than(mean, two), lambda: L.relu(h)),
    ]
    return L.mean(L.case(pairs, default=lambda: L.scale(h, 3.0)))


def switch_case(fluid):
    L = fluid.layers
    way = L.data("way", [1], dtype="int32", append_batch_size=False)
    h = L.fc(L.data("x", [4]), 4)
    branches = {1: lambda: L.tanh(h), 3: lambda: L.relu(h)}
    return L.mean(L.switch_case(way, branches, default=lambda: L.scale(h, 3.0)))


def switch(fluid):
    """Cases that write one variable, through which a gradient flows."""
    L = fluid.layers
    x = L.data("x", [4])
    h, mean, one = L.fc(x, 4), L.reduce_mean(x), L.fill_constant([1], "float32", 1.0)
    out = L.create_global_var([1], 0.0, "float32", persistable=True)
    out.stop_gradient = False
    with L.Switch() as switch:
        with switch.case(L.less_than(mean, one)):
            L.assign(L.mean(L.tanh(h)), out)
        with switch.default():
            L.assign(L.mean(h), out)
    return L.mean(out)


def if_else(fluid):
    L = fluid.layers
    x, label = L.data("x", [4]), L.data("label", [1], dtype="int64")
    h = L.fc(x, 4)
    limit = L.fill_constant_batch_size_like(label, [-1, 1], "int64", 5)
    choice = L.IfElse(L.less_than(label, limit))
    with choice.true_block():
        choice.output(L.fc(choice.input(h), 3, act="tanh"))
    with choice.false_block():
        choice.output(L.fc(choice.input(h), 3, act="relu"))
    return L.mean(choice()[0])


def static_rnn(fluid):
    """Two states, one of which begins as what every step reads."""
    L = fluid.layers
    x = L.data("x", [4, 5, 6], append_batch_size=False)
    steps = L.fc(x, 6, num_flatten_dims=2)
    whole = L.reduce_mean(L.fc(x, 6, num_flatten_dims=2), dim=0)
    rnn = L.StaticRNN()
    with rnn.step():
        step = rnn.step_input(steps)
        before = rnn.memory(shape=[-1, 6], batch_ref=steps)
        cell = rnn.memory(init=whole)
        hidden = L.fc([step, before], 6, act="tanh")
        after = L.elementwise_add(L.elementwise_mul(cell, hidden), whole)
        rnn.update_memory(before, hidden)
        rnn.update_memory(cell, after)
        rnn.step_output(hidden)
        rnn.output(after)
    outputs = rnn()
    return L.mean(L.elementwise_add(outputs[0], outputs[1]))


def dynamic_rnn(fluid):
    L = fluid.layers
    words = L.fc(L.data("x", [6], lod_level=1), 6)
    whole = L.fc(L.data("s", [6]), 6)
    rnn = L.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        inputs = rnn.static_input(whole)
        before = rnn.memory(shape=[6], value=0.0)
        other = rnn.memory(init=whole, need_reorder=True)
        hidden = L.fc([word, before, inputs], 6, act="tanh")
        product = L.elementwise_mul(other, hidden)
        rnn.update_memory(before, hidden)
        rnn.update_memory(other, product)
        rnn.output(hidden, product)
    first, second = rnn()
    return L.mean(L.elementwise_add(first, second))


def array_of_two(fluid):
    """An array as one tensor, whose counter has a gradient and so is counted back."""
    L = fluid.layers
    h = L.fc(L.data("x", [4]), 4)
    i = L.fill_constant([1], "int64", 0)
    i.stop_gradient = False
    array = L.array_write(h, i)
    L.increment(i)
    L.array_write(L.tanh(h), i, array)
    return L.mean(L.tensor_array_to_tensor(array, axis=1)[0])


def py_func(fluid):
    L = fluid.layers
    h = L.fc(L.data("x", [5]), 5)
    block = fluid.default_main_program().current_block()
    out = block.create_var(name="out", dtype="float32", shape=[-1, 5])
    L.py_func(lambda x: x, h, out, backward_func=lambda y, dy: dy, skip_vars_in_backward_input=h)
    return L.mean(out)


def printed(fluid):
    L = fluid.layers
    once = L.Print(L.fc(L.data("x", [5]), 5), message="here", summarize=3)
    return L.mean(L.Print(once, print_phase="forward"))


MODELS = [
    while_with_array,
    while_that_sums,
    while_in_while,
    cond_in_while,
    while_in_cond,
    while_loop_with_op,
    while_loop_with_number,
    while_loop_in_place,
    cond,
    cond_in_cond,
    case,
    switch_case,
    switch,
    if_else,
    static_rnn,
    dynamic_rnn,
    array_of_two,
    py_func,
    printed,
]

SIZES = {"while_with_array": (3, 5), "static_rnn": (4, 5, 6), "py_func": (3, 5), "printed": (3, 5)}
LENGTHS = [[3, 5, 2], [4, 4, 1], [1, 6, 3]]
STEPS = 3


def feed(name, step, sequences):
    """What a model reads in a step; `sequences` makes rows with lengths what the executor takes."""
    random = np.random.RandomState(step)
    if name == "dynamic_rnn":
        words, whole = random.normal(size=(sum(LENGTHS[step]), 6)), random.normal(size=(3, 6))
        return {"x": sequences(_single(words), LENGTHS[step]), "s": _single(whole)}
    feeds = {"x": _single(random.normal(size=SIZES.get(name, (4, 4))) + 0.8 - 0.8 * step)}
    if name == "if_else":
        feeds["label"] = np.array([[1], [7], [2], [9]], "int64")
    if name == "switch_case":
        feeds["way"] = np.array([2 * step + 1], "int32")
    return feeds


def _single(x):
    return x.astype("float32")


def weights(name, shape):
    """What a parameter begins as."""
    random = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return _single(random.uniform(-0.5, 0.5, size=shape))


def train(fluid, model, sequences):
    """The losses of a model in three steps of gradient descent."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        loss = model(fluid)
        fluid.optimizer.SGD(0.1).minimize(loss)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(scope):
        exe.run(startup)
        for var in main.all_parameters():
            held = scope.find_var(var.name).get_tensor()
            held.set(weights(var.name, var.shape), fluid.CPUPlace())
        feeds = [feed(model.__name__, step, sequences) for step in range(STEPS)]
        return [float(exe.run(main, feed=each, fetch_list=[loss])[0][0]) for each in feeds]
