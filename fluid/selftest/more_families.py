"""The families of kernels of the selftest: rows, shapes, sequences, training and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fluid import layers, optimizer
from fluid.framework import Variable
from fluid.selftest.cases import Case, Shape

CUBE: tuple[Shape, Shape] = (5, 7, 37), (33, 41, 503)
ROWS: tuple[Shape, Shape] = (6, 37), (513, 1031)


def _losses() -> list[Case]:
    labels = {1: 37}
    small, large = (ROWS[0], (6, 1)), (ROWS[1], (513, 1))

    def cross_entropy(x: Variable, label: Variable) -> Variable:
        return layers.mean(layers.cross_entropy(layers.softmax(x), label))

    return [
        Case("softmax", layers.softmax, (ROWS[0],), (ROWS[1],)),
        Case("softmax over 1", partial(layers.softmax, axis=1), (CUBE[0],), (CUBE[1],)),
        Case("softmax_with_cross_entropy", layers.softmax_with_cross_entropy, small, large, labels),
        Case("cross_entropy", cross_entropy, small, large, labels),
        Case("square_error_cost", layers.square_error_cost, (ROWS[0],) * 2, (ROWS[1],) * 2),
        Case("huber_loss", partial(layers.huber_loss, delta=0.5), ((9, 1),) * 2, ((70001, 1),) * 2),
    ]


def _embeddings() -> list[Case]:
    def looked_up(ids: Variable, is_sparse: bool) -> Variable:
        rows = layers.embedding(ids, [1009, 33], is_sparse=is_sparse)
        loss = layers.mean(rows * rows)
        optimizer.Adagrad(0.1).minimize(loss)
        return loss

    small, large = ((7, 1),), ((20011, 1),)
    return [
        Case(
            f"embedding, {kind} gradient", partial(looked_up, is_sparse=kind == "sparse"),
            small, large, {0: 1009}, has_gradients=False,
        )
        for kind in ("dense", "sparse")
    ]  # fmt: skip


OPTIMIZERS: dict[str, Callable[[], optimizer.Optimizer]] = {
    "sgd": partial(optimizer.SGD, 0.1),
    "momentum": partial(optimizer.Momentum, 0.1, 0.9),
    "adam": partial(optimizer.Adam, 0.01),
    "adamax": partial(optimizer.Adamax, 0.01),
    "adagrad": partial(optimizer.Adagrad, 0.1),
    "adadelta": partial(optimizer.Adadelta, 0.1),
    "rmsprop": partial(optimizer.RMSProp, 0.1),
    "ftrl": partial(optimizer.Ftrl, 0.1),
    "lamb": partial(optimizer.Lamb, 0.01),
}


def _optimizers() -> list[Case]:
    def train(x: Variable, make: Callable[[], optimizer.Optimizer], width: int) -> Variable:
        loss = layers.mean(layers.fc(x, width))
        make().minimize(loss)
        return loss

    return [
        Case(
            name, partial(train, make=make, width=33), ((5, 7),), ((5, 8009),), has_gradients=False
        )
        for name, make in OPTIMIZERS.items()
    ]


def _sequences() -> list[Case]:
    def lstm(x: Variable) -> Variable:
        width = 4 * 19
        return layers.dynamic_lstm(layers.fc(x, width), width, use_peepholes=False)[0]

    def gru(x: Variable) -> Variable:
        return layers.dynamic_gru(layers.fc(x, 3 * 19), 19)

    def pool(kind: str) -> Callable[[Variable], Variable]:
        return partial(layers.sequence_pool, pool_type=kind)

    small, large = ((23, 13),), ((3001, 130),)
    cases = [Case("lstm", lstm, small, ((301, 40),), lod=True)]
    cases += [Case("gru", gru, small, ((301, 40),), lod=True)]
    kinds = ("sum", "average", "max", "last")
    cases += [Case(f"sequence_pool {kind}", pool(kind), small, large, lod=True) for kind in kinds]
    softmax = layers.sequence_softmax
    return [*cases, Case("sequence_softmax", softmax, ((23, 1),), ((90001, 1),), lod=True)]


def _shapes() -> list[Case]:
    def joined(x: Variable, y: Variable, axis: int) -> Variable:
        return layers.concat([x, y], axis)

    def divided(x: Variable) -> list[Variable]:
        parts = layers.split(x, [3, 4] if x.shape[1] == 7 else [20, 21], 1)
        return [part * 2.0 for part in parts]

    def stacked(x: Variable, y: Variable) -> Variable:
        return layers.stack([x, y], 1)

    def gathered(x: Variable, ids: Variable) -> Variable:
        return layers.gather(x, ids)

    small, large = CUBE
    orders = ([1, 0, 2], [0, 2, 1], [2, 1, 0], [2, 0, 1])
    return [
        *(
            Case(f"transpose {order}", partial(layers.transpose, perm=order), (small,), (large,))
            for order in orders
        ),
        *(
            Case(f"concat over {axis}", partial(joined, axis=axis), (small,) * 2, (large,) * 2)
            for axis in (1, 2)
        ),
        Case("split", divided, (small,), (large,)),
        Case("gather", gathered, (ROWS[0], (9,)), (ROWS[1], (4001,)), {1: 6}),
        Case("stack", stacked, (small,) * 2, (large,) * 2),
        Case("pad", partial(layers.pad, paddings=[0, 0, 1, 2, 3, 0]), (small,), (large,)),
        Case("expand", partial(layers.expand, expand_times=[1, 1, 3]), (small,), (large,)),
        Case(
            "slice", partial(layers.slice, axes=[1, 2], starts=[1, 2], ends=[6, 35]),
            (small,), (large,),
        ),
    ]  # fmt: skip


def _sorting() -> list[Case]:
    small, large = (ROWS[0],), (ROWS[1],)

    def sort(x: Variable) -> tuple[Variable, ...]:
        return layers.argsort(x, axis=-1)

    def sorted_values(x: Variable) -> Variable:
        return sort(x)[0]

    def top(x: Variable) -> tuple[Variable, ...]:
        return layers.topk(x, k=5)

    return [
        Case("argsort", sorted_values, small, large),
        Case("argsort indices", sort, small, large, has_gradients=False),
        Case("topk", top, small, large, has_gradients=False),
        Case("argmax", partial(layers.argmax, axis=-1), small, large, has_gradients=False),
        Case("argmax over 0", partial(layers.argmax, axis=0), small, large, has_gradients=False),
        Case("cumsum", partial(layers.cumsum, axis=-1), small, large),
    ]


def _casts() -> list[Case]:
    def through(x: Variable, dtype: str) -> Variable:
        return layers.cast(layers.cast(x, dtype) * 2.0, "float32")

    def to(x: Variable, dtype: str) -> Variable:
        return layers.cast(x * 100.0, dtype)

    small, large = (CUBE[0],), (CUBE[1],)
    cases = [Case(f"{d}", partial(through, dtype=d), small, large) for d in ("float16", "float64")]
    kinds = ("int32", "int64", "uint8", "bool")
    return cases + [
        Case(
            f"to {kind}", partial(to, dtype=kind), small, large, positive=True, has_gradients=False
        )
        for kind in kinds
    ]


def _random() -> list[Case]:
    def dropped(x: Variable) -> Variable:
        return layers.dropout(x, 0.4, dropout_implementation="upscale_in_train")

    def noise(x: Variable) -> Variable:
        return x + layers.uniform_random([*CUBE[1][1:]])

    return [
        Case("dropout", dropped, (CUBE[0],), (CUBE[1],)),
        Case("uniform", noise, (CUBE[1],), (CUBE[1],)),
    ]


MORE_FAMILIES: dict[str, Sequence[Case]] = {
    "losses": _losses(),
    "embeddings": _embeddings(),
    "optimizers": _optimizers(),
    "sequences": _sequences(),
    "shapes": _shapes(),
    "sorting": _sorting(),
    "casts": _casts(),
    "random": _random(),
}
"""The cases of each family."""
