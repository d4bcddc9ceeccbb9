"""Nets that jobs with parameter servers train; each returns its loss, and what draws a feed.

Sequences are drawn as int64 [rows, length, 1], see `fed` of `role.py`.
"""

from __future__ import annotations

from typing import Any

from fluid.demo.digits import load_digits
from tests.golden import zoo


def two_layers_wide(fluid: Any) -> Any:
    """A layer of a million weights, and one behind it."""
    x = fluid.layers.data("x", [1000])
    y = fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 1000, act="relu")
    error = fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y)
    draw = zoo.normal
    feed = lambda random, n: {"x": draw(random, n, 1000) / 30, "y": draw(random, n, 1)}  # noqa: E731
    return fluid.layers.mean(error), [], feed


WORDS = 2000
"""Rows of the table, which is cut into two slices."""


def word2vec(fluid: Any, **table: Any) -> Any:
    """The next of four words, from a shared sparse table."""
    words = [fluid.layers.data(f"word{i}", [1], dtype="int64") for i in range(4)]
    label = fluid.layers.data("label", [1], dtype="int64")
    kind = {"is_sparse": True, "param_attr": "shared", **table}
    vectors = [fluid.layers.embedding(word, [WORDS, 16], **kind) for word in words]
    hidden = fluid.layers.fc(fluid.layers.concat(vectors, axis=1), 32, act="sigmoid")
    chances = fluid.layers.fc(hidden, 50, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(chances, label))

    def draw(random: Any, n: int) -> Any:
        results = {f"word{i}": random.integers(0, WORDS, (n, 1)) for i in range(4)}
        results["word1"] = results["word0"] % 5  # some rows come several times
        return {**results, "label": results["word0"] % 50}

    return loss, [], draw


def far_words(fluid: Any) -> Any:
    """The same with `is_distributed`."""
    return word2vec(fluid, is_distributed=True)


def ctr_wide_deep(fluid: Any) -> Any:
    """A wide and a deep sparse table, and numbers beside them."""
    clicks = fluid.layers.data("clicks", [1], dtype="int64", lod_level=1)
    user = fluid.layers.data("user", [1], dtype="int64")
    numbers = fluid.layers.data("numbers", [8])
    label = fluid.layers.data("label", [1], dtype="int64")
    deep = fluid.layers.embedding(user, [WORDS, 16], is_sparse=True, param_attr="deep")
    wide = fluid.layers.embedding(clicks, [300, 1], is_sparse=True, param_attr="wide")
    hidden = fluid.layers.fc([deep, numbers], 16, act="relu")
    scores = fluid.layers.fc([hidden, fluid.layers.sequence_pool(wide, "sum")], 2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, label))

    def draw(random: Any, n: int) -> Any:
        return {
            "clicks": random.integers(0, 300, (n, 3, 1)),
            "user": random.integers(0, WORDS, (n, 1)),
            "numbers": zoo.normal(random, n, 8),
            "label": random.integers(0, 2, (n, 1)),
        }

    return loss, [], draw


def tree(fluid: Any) -> Any:
    """A hierarchical sigmoid over a tree of its own, whose weight has a sparse gradient."""
    x = fluid.layers.data("x", [8])
    label = fluid.layers.data("label", [1], dtype="int64")
    forks = fluid.layers.data("forks", [4], dtype="int64")
    turns = fluid.layers.data("turns", [4], dtype="int64")
    hidden = fluid.layers.fc(x, 16, act="tanh")
    paths = {"path_table": forks, "path_code": turns, "is_custom": True, "is_sparse": True}
    loss = fluid.layers.mean(fluid.layers.hsigmoid(hidden, label, WORDS, **paths))

    def draw(random: Any, n: int) -> Any:
        return {
            "x": zoo.normal(random, n, 8),
            "label": random.integers(0, WORDS, (n, 1)),
            "forks": random.integers(0, WORDS, (n, 4)),
            "turns": random.integers(0, 2, (n, 4)),
        }

    return loss, [], draw


def noise(fluid: Any) -> Any:
    """Noise contrastive estimation with a sparse gradient; its classes are drawn by a seed."""
    x = fluid.layers.data("x", [8])
    label = fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.fc(x, 16, act="tanh")
    drawn = {"num_neg_samples": 5, "seed": 3, "is_sparse": True}
    loss = fluid.layers.mean(fluid.layers.nce(hidden, label, WORDS, **drawn))

    def draw(random: Any, n: int) -> Any:
        return {"x": zoo.normal(random, n, 8), "label": random.integers(0, WORDS, (n, 1))}

    return loss, [], draw


def digits(fluid: Any) -> Any:
    """The digits of the demo, written by people, by two layers."""
    image = fluid.layers.data("img", [1, 16, 16])
    label = fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.fc(image, 64, act="relu")
    chances = fluid.layers.fc(hidden, 10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(chances, label))
    known = load_digits()[0]

    def draw(random: Any, n: int) -> Any:
        chosen = random.integers(0, len(known), n)
        return {"img": known.pixels[chosen], "label": known.labels[chosen]}

    return loss, [], draw


# ---- nets of the reference's own TestDistBase, small


def mnist(fluid: Any) -> Any:
    """Two convolutions with poolings, as of handwritten digits."""
    image, label = zoo.picture(fluid, [1, 16, 16])
    pool = {"pool_size": 2, "pool_stride": 2, "act": "relu"}
    conv = fluid.nets.simple_img_conv_pool
    features = conv(conv(image, 4, 5, **pool), 6, 3, **pool)
    chances = fluid.layers.fc(features, 10, act="softmax")
    return classified(fluid, chances, label), [], zoo.pictures(1, 16, 16)


def se_resnext(fluid: Any) -> Any:
    """A block of grouped convolutions whose channels are weighed by what they hold."""
    image, label = zoo.picture(fluid, [3, 8, 8])
    x = zoo.convolution(fluid, image, 8, 3, 1, "relu")
    y = fluid.layers.conv2d(x, 8, 3, padding=1, groups=4, bias_attr=False)
    y = fluid.layers.batch_norm(y)
    held = fluid.layers.pool2d(y, pool_type="avg", global_pooling=True)
    weights = fluid.layers.fc(fluid.layers.fc(held, 4, act="relu"), 8, act="sigmoid")
    y = fluid.layers.elementwise_mul(y, weights, axis=0)
    x = fluid.layers.pool2d(fluid.layers.elementwise_add(x, y, act="relu"), global_pooling=True)
    chances = fluid.layers.fc(x, 10, act="softmax")
    return classified(fluid, chances, label), [], zoo.pictures(3, 8, 8)


def transformer(fluid: Any) -> Any:
    """A layer of an encoder."""
    loss, _ = zoo.MODELS["transformer_encoder"](fluid)

    def draw(random: Any, n: int) -> Any:
        return {"x": zoo.normal(random, n, 6, 16), "label": random.integers(0, 5, (n, 1))}

    return loss, [], draw


def text_classification(fluid: Any) -> Any:
    """Sequence convolutions over words of a sparse table."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64")
    vectors = fluid.layers.embedding(words, [WORDS, 8], is_sparse=True)
    held = fluid.nets.sequence_conv_pool(vectors, 6, 3, act="tanh", pool_type="max")
    chances = fluid.layers.fc(held, 2, act="softmax")

    def draw(random: Any, n: int) -> Any:
        words = random.integers(0, WORDS, (n, 5, 1))
        return {"words": words, "label": random.integers(0, 2, (n, 1))}

    return classified(fluid, chances, label), [], draw


def simnet_bow(fluid: Any) -> Any:
    """Bags of words of one table: a query is nearer to one title than to another."""
    names = ("query", "near", "far")
    words = [fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in names]
    kind = {"is_sparse": True, "param_attr": "shared"}
    bags = [
        fluid.layers.sequence_pool(fluid.layers.embedding(w, [WORDS, 8], **kind), "sum")
        for w in words
    ]
    parts = [
        fluid.layers.fc(
            fluid.layers.softsign(bag), 8, param_attr=f"{side}_w", bias_attr=f"{side}_b"
        )
        for bag, side in zip(bags, ("left", "right", "right"), strict=True)
    ]
    near, far = (fluid.layers.cos_sim(parts[0], part) for part in parts[1:])
    margin = fluid.layers.elementwise_sub(far, near) + 0.5
    loss = fluid.layers.mean(fluid.layers.relu(margin))
    return loss, [], lambda random, n: {w: random.integers(0, WORDS, (n, 4, 1)) for w in names}


def classified(fluid: Any, chances: Any, label: Any) -> Any:
    """The mean cross entropy of a batch."""
    return fluid.layers.mean(fluid.layers.cross_entropy(chances, label))


NETS = (
    two_layers_wide, word2vec, far_words, ctr_wide_deep, tree, noise, digits, mnist, se_resnext,
    transformer, text_classification, simnet_bow,
)  # fmt: skip
MODELS = {**zoo.MODELS, **{net.__name__: net for net in NETS}}
