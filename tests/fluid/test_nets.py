"""Layers that are always used together: what they record, compute, and say of bad arguments."""

import numpy as np
import pytest

import fluid
from fluid import nets
from fluid.framework import default_main_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def ops() -> list[str]:
    return [op.type for op in default_main_program().global_block().ops]


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_convolved_and_pooled() -> None:
    words = fluid.data("words", [None, 8], lod_level=1)
    out = nets.sequence_conv_pool(words, 6, 3, act="tanh", pool_type="sqrt")
    assert ops() == ["sequence_conv", "elementwise_add", "tanh", "sequence_pool"]
    assert (out.shape, out.lod_level) == ((-1, 6), 0)


@pytest.mark.parametrize("dim", [-1, 1])
def test_gated_linear_unit(exe: fluid.Executor, dim: int) -> None:
    out = nets.glu(fluid.data("x", [2, 4, 6]), dim=dim)
    inputs = np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)
    value, gate = np.split(inputs, 2, axis=dim)
    result = exe.run(feed={"x": inputs}, fetch_list=[out])[0]
    np.testing.assert_allclose(result, value / (1 + np.exp(-gate)), rtol=1e-5)


def attended(heads: int, dropout: float = 0.0):
    """Record attention of 3 queries over 4 keys, and return its result and a feed."""
    sizes = {"queries": (3, 8), "keys": (4, 8), "values": (4, 6)}
    draw = np.random.default_rng(0)
    feed = {n: draw.normal(size=(2, *size)).astype(np.float32) for n, size in sizes.items()}
    inputs = [fluid.data(name, [None, *size]) for name, size in sizes.items()]
    return nets.scaled_dot_product_attention(*inputs, heads, dropout), feed


def test_attention_of_one_head(exe: fluid.Executor) -> None:
    out, feed = attended(1)
    shares = softmax(feed["queries"] @ feed["keys"].transpose(0, 2, 1) / 8**0.5)
    result = exe.run(feed=feed, fetch_list=[out])[0]
    np.testing.assert_allclose(result, shares @ feed["values"], rtol=1e-4, atol=1e-6)


def test_attention_of_two_heads(exe: fluid.Executor) -> None:
    out, feed = attended(2)
    exe.run(fluid.default_startup_program())
    weights = [
        parameter
        for parameter in default_main_program().all_parameters()
        if ".w_" in parameter.name
    ]
    seen = [np.array(fluid.global_scope().find_var(weight.name).get_tensor()) for weight in weights]
    pairs = zip(feed.values(), seen, strict=True)
    queries, keys, values = (np.stack(np.split(x @ w, 2, axis=2), axis=1) for x, w in pairs)
    heads = softmax(queries @ keys.transpose(0, 1, 3, 2) / 4**0.5) @ values
    result = exe.run(feed=feed, fetch_list=[out])[0]
    np.testing.assert_allclose(
        result, np.concatenate(list(heads.swapaxes(0, 1)), 2), rtol=1e-4, atol=1e-5
    )


def test_attention_may_drop() -> None:
    attended(1, dropout=0.1)
    assert ops() == ["scale", "matmul", "reshape2", "softmax", "reshape2", "dropout", "matmul"]


@pytest.mark.parametrize(
    ("shapes", "dtypes", "heads", "error", "message"),
    [
        ([(3, 8), (4, 7), (4, 6)], "fff", 1, ValueError, "must have the same size"),
        ([(3, 8), (4, 8), (5, 6)], "fff", 1, ValueError, "a value for each key"),
        ([(3, 8), (4, 8), (4, 6)], "fff", 4, ValueError, "are not divisible by 4 heads"),
        ([(3, 8), (4, 8), (4,)], "fff", 1, ValueError, r"takes \[batch, length, size\]"),
        ([(3, 8), (4, 8), (4, 6)], "ffd", 1, TypeError, "requires equal dtypes"),
        ([(3, 8), (4, 8), (4, 6)], "ffl", 1, TypeError, "'values'"),
    ],
)
def test_bad_attention(shapes, dtypes, heads, error, message) -> None:
    names = ("queries", "keys", "values")
    known = {"f": "float32", "d": "float64", "l": "int64"}
    inputs = [
        fluid.data(name, [None, *shape], known[dtype])
        for name, shape, dtype in zip(names, shapes, dtypes, strict=True)
    ]
    with pytest.raises(error, match=message):
        nets.scaled_dot_product_attention(*inputs, num_heads=heads)
