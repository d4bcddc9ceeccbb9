"""Programs made by chance, for what must hold of any program: steps that hypothesis draws.

A step is a kind and two numbers that choose among the variables there are.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies

import fluid

layers = fluid.layers
Step = tuple[str, int, int]
Made = list[fluid.Variable]


def turned(made: Made, i: int, j: int) -> fluid.Variable:
    """An activation of one variable."""
    kind = (layers.relu, layers.tanh, layers.square, layers.sigmoid)[j % 4]
    return kind(made[i % len(made)])


def joined(made: Made, i: int, j: int) -> fluid.Variable:
    """A sum or a product of two."""
    kind = layers.elementwise_mul if (i + j) % 3 == 0 else layers.elementwise_add
    return kind(made[i % len(made)], made[j % len(made)])


def mixed(made: Made, i: int, j: int) -> fluid.Variable:
    """A layer with weights of its own, or with those of another one."""
    attr = fluid.ParamAttr(name="shared") if j % 2 else None
    return layers.fc(made[i % len(made)], 4, param_attr=attr)


def narrow_and_wide(made: Made, i: int, j: int) -> fluid.Variable:
    """Something smaller than all others for a while."""
    narrow = layers.fc(made[i % len(made)], 1 + j % 3)
    return layers.elementwise_add(made[j % len(made)], layers.reduce_sum(narrow, 1, True))


def halves(made: Made, i: int, j: int) -> fluid.Variable:
    """Two parts the other way round; an op with two outputs."""
    left, right = layers.split(made[i % len(made)], 2, 1)
    return layers.concat([right, left], 1)


def overwritten(made: Made, i: int, j: int) -> fluid.Variable:
    """A variable that gets another value, after it was read."""
    target = layers.scale(made[i % len(made)], 0.5)
    kept = layers.tanh(target)
    layers.assign(made[j % len(made)], target)
    return layers.elementwise_add(kept, target)


def counted(made: Made, i: int, j: int) -> fluid.Variable:
    """A loop that reads one variable and adds another one up in a third."""
    limit = layers.fill_constant([1], "int64", 1 + j % 3)
    place = layers.fill_constant([1], "int64", 0)
    total = layers.scale(made[i % len(made)], 0.5)
    running = layers.less_than(place, limit)
    loop = layers.While(running)
    with loop.block():
        part = layers.tanh(layers.scale(made[j % len(made)], 0.5))
        layers.assign(layers.elementwise_add(total, layers.relu(part)), total)
        layers.increment(place)
        layers.less_than(place, limit, cond=running)
    return total


def chosen(made: Made, i: int, j: int) -> fluid.Variable:
    """A branch that data takes."""
    a, b = made[i % len(made)], made[j % len(made)]
    total = layers.reduce_sum(a)
    is_more = layers.less_than(layers.fill_constant([1], "float32", 0.0), total)

    def first() -> fluid.Variable:
        return layers.tanh(layers.scale(layers.relu(b), 2.0))

    return layers.cond(is_more, first, lambda: layers.scale(layers.square(a), 0.5))


KINDS: dict[str, Callable[[Made, int, int], fluid.Variable]] = {
    each.__name__: each
    for each in (turned, joined, mixed, narrow_and_wide, halves, overwritten, counted, chosen)
}
steps = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(sorted(KINDS)),
        strategies.integers(0, 30),
        strategies.integers(0, 30),
    ),
    min_size=2,
    max_size=9,
)


def record(steps: Sequence[Step]) -> fluid.Variable:
    """Append the steps to the default program, from data `x` [?, 4]; the mean of the last."""
    x = layers.data("x", [4])
    created = [layers.fc(x, 4, act="tanh")]
    for kind, i, j in steps:
        created.append(KINDS[kind](created, i, j))
    return layers.mean(layers.sums([each for each in created if each.shape == created[0].shape]))


# ---- networks with norms


def normed(made: Made, i: int, j: int) -> fluid.Variable:
    """A norm, in place or not, of anything."""
    return layers.batch_norm(made[i % len(made)], epsilon=10.0 ** -(1 + j % 5))


def convolved(made: Made, i: int, j: int) -> fluid.Variable:
    """A convolution of some kind, whose filter may be shared, with a bias or without."""
    inputs: dict[str, Any] = {"bias_attr": None if i % 2 else False, "padding": 1}
    if j % 5 == 0:
        inputs["param_attr"] = fluid.ParamAttr(name="shared_filter")
    else:
        inputs["groups"] = (1, 2, 4)[j % 3]
        inputs["use_cudnn"] = j % 2 == 0
    if j % 7 == 3:
        inputs.pop("param_attr", None)
        return layers.conv2d_transpose(made[i % len(made)], 4, filter_size=3, **inputs)
    return layers.conv2d(made[i % len(made)], 4, 3, **inputs)


def residual(made: Made, i: int, j: int) -> fluid.Variable:
    """A sum of two."""
    return layers.elementwise_add(made[i % len(made)], made[j % len(made)])


def activated(made: Made, i: int, j: int) -> fluid.Variable:
    """An activation of the last one."""
    return layers.relu(made[-1 - i % min(2, len(made))])


NORM_KINDS = {each.__name__: each for each in (convolved, residual, activated)}
norm_steps = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(["normed_last", *NORM_KINDS, "normed_last", "convolved"]),
        strategies.integers(0, 30),
        strategies.integers(0, 30),
    ),
    min_size=2,
    max_size=10,
)


def record_norms(steps: Sequence[Step]) -> fluid.Variable:
    """Append a network of norms to the default program, from data `x` [?, 4, 5, 5]."""
    created = [layers.data("x", [4, 5, 5])]
    created.append(convolved(created, 0, 1))
    for kind, i, j in steps:
        step = NORM_KINDS.get(kind)
        created.append(step(created, i, j) if step else normed(created, len(created) - 1, j))
    return created[-1]
