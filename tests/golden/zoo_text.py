"""The models of the zoo over words, clicks, steps and loops; see `zoo.py`."""

from typing import Any

Model = tuple[Any, list[Any]]


def word2vec(fluid: Any) -> Model:
    """Four words, looked up in one table, predict the fifth."""
    words = [fluid.layers.data(name=f"w{i}", shape=[1], dtype="int64") for i in range(5)]
    vectors = [
        fluid.layers.embedding(input=w, size=[40, 8], param_attr="shared_w", is_sparse=False)
        for w in words[:4]
    ]
    hidden = fluid.layers.concat(vectors, axis=1)
    hidden = fluid.layers.fc(input=hidden, size=24, act="sigmoid")
    chances = fluid.layers.fc(input=hidden, size=40, act="softmax")
    return cross_entropy(fluid, chances, words[4]), [chances]


def ctr_wide_deep(fluid: Any) -> Model:
    """Three sparse tables and six numbers, a deep part and a wide one."""
    dense = fluid.layers.data(name="dense", shape=[6], dtype="float32")
    fields = [fluid.layers.data(name=f"c{i}", shape=[1], dtype="int64") for i in range(3)]
    label = fluid.layers.data(name="click", shape=[1], dtype="int64")
    vectors = [
        fluid.layers.embedding(
            field, size=[50, 4], is_sparse=True, param_attr=fluid.ParamAttr(name=f"emb_{k}")
        )
        for k, field in enumerate(fields)
    ]
    hidden = fluid.layers.concat([*vectors, dense], axis=1)
    for size in (32, 16):
        hidden = fluid.layers.fc(hidden, size=size, act="relu")
    wide = fluid.layers.fc(dense, size=2)
    deep = fluid.layers.fc(hidden, size=2)
    chances = fluid.layers.softmax(fluid.layers.elementwise_add(deep, wide))
    return cross_entropy(fluid, chances, label), [chances]


def mobilenet_block(fluid: Any) -> Model:
    """An inverted residual block with a depthwise convolution."""
    image = fluid.layers.data(name="img", shape=[3, 16, 16], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    x = normed(fluid, image, 8, 3, 2, "relu6")
    y = normed(fluid, x, 24, 1, 1, "relu6")
    y = fluid.layers.conv2d(
        y, num_filters=24, filter_size=3, padding=1, groups=24, use_cudnn=False, bias_attr=False
    )
    y = fluid.layers.batch_norm(y, act="relu6")
    y = normed(fluid, y, 8, 1, 1, None)
    x = fluid.layers.elementwise_add(x, y)
    x = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
    scores = fluid.layers.fc(x, size=10)
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, label)), [scores]


def transformer_encoder(fluid: Any) -> Model:
    """One layer of a transformer's encoder, four heads over six steps."""
    steps, width, heads = 6, 16, 4
    x = fluid.layers.data(name="x", shape=[steps, width], dtype="float32")
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    query, key, value = (
        fluid.layers.fc(x, size=width, num_flatten_dims=2, bias_attr=False) for _ in range(3)
    )

    def split(t: Any) -> Any:
        parts = fluid.layers.reshape(t, [0, 0, heads, width // heads])
        return fluid.layers.transpose(parts, perm=[0, 2, 1, 3])

    query, key = split(query), split(key)
    scale = (width // heads) ** -0.5
    weights = fluid.layers.softmax(fluid.layers.matmul(query, key, transpose_y=True, alpha=scale))
    mixed = fluid.layers.matmul(weights, split(value))
    mixed = fluid.layers.reshape(fluid.layers.transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, width])
    mixed = fluid.layers.fc(mixed, size=width, num_flatten_dims=2)
    h = fluid.layers.layer_norm(fluid.layers.elementwise_add(x, mixed), begin_norm_axis=2)
    inner = fluid.layers.fc(h, size=32, num_flatten_dims=2, act="gelu")
    inner = fluid.layers.fc(inner, size=width, num_flatten_dims=2)
    h = fluid.layers.layer_norm(fluid.layers.elementwise_add(h, inner), begin_norm_axis=2)
    scores = fluid.layers.fc(fluid.layers.reduce_mean(h, dim=1), size=5)
    return fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, label)), [scores]


def sentiment_conv(fluid: Any) -> Model:
    """Two sequence convolutions over sentences of several lengths."""
    words, label = sentences(fluid)
    vectors = fluid.layers.embedding(words, size=[30, 8])
    pool = fluid.nets.sequence_conv_pool
    first = pool(vectors, num_filters=6, filter_size=3, act="tanh", pool_type="sqrt")
    second = pool(vectors, num_filters=6, filter_size=4, act="tanh", pool_type="max")
    chances = fluid.layers.fc(input=[first, second], size=2, act="softmax")
    return cross_entropy(fluid, chances, label), [chances]


def sentiment_stacked_lstm(fluid: Any) -> Model:
    """Two LSTMs, the second one backwards."""
    words, label = sentences(fluid)
    vectors = fluid.layers.embedding(words, size=[30, 8])
    first = fluid.layers.fc(vectors, size=16)
    forward, _ = fluid.layers.dynamic_lstm(first, size=16, use_peepholes=False)
    second = fluid.layers.fc([first, forward], size=16)
    back, _ = fluid.layers.dynamic_lstm(second, size=16, is_reverse=True, use_peepholes=False)
    tops = [fluid.layers.sequence_pool(each, "max") for each in (second, back)]
    chances = fluid.layers.fc(tops, size=2, act="softmax")
    return cross_entropy(fluid, chances, label), [chances]


def tagger_gru_crf(fluid: Any) -> Model:
    """A GRU in each direction and a CRF on top."""
    words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    tags = fluid.layers.data(name="tags", shape=[1], dtype="int64", lod_level=1)
    vectors = fluid.layers.embedding(words, size=[40, 6])
    forward = fluid.layers.dynamic_gru(fluid.layers.fc(vectors, size=15), size=5)
    back = fluid.layers.dynamic_gru(fluid.layers.fc(vectors, size=15), size=5, is_reverse=True)
    emission = fluid.layers.fc(fluid.layers.concat([forward, back], axis=1), size=4)
    shared = fluid.ParamAttr(name="crfw")
    cost = fluid.layers.linear_chain_crf(emission, tags, param_attr=shared)
    path = fluid.layers.crf_decoding(emission, param_attr=fluid.ParamAttr(name="crfw"))
    return fluid.layers.mean(cost), [path]


def static_rnn_lm(fluid: Any) -> Model:
    """A recurrent net over four steps."""
    steps, batch, width = 4, 5, 6
    shape = [steps, batch, width]
    x = fluid.layers.data(name="x", shape=shape, dtype="float32", append_batch_size=False)
    y = fluid.layers.data(name="y", shape=shape, dtype="float32", append_batch_size=False)
    boot = fluid.layers.fill_constant(shape=[batch, width], dtype="float32", value=0.1)
    boot.stop_gradient = False
    inputs = fluid.layers.fc(x, size=width, num_flatten_dims=2)
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        step, before = rnn.step_input(inputs), rnn.memory(init=boot)
        hidden = fluid.layers.fc([step, before], size=width, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    out = rnn()
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y)), [out]


def while_power(fluid: Any) -> Model:
    """A loop over an array, three times half of the last element and one."""
    x = fluid.layers.data(name="x", shape=[5], dtype="float32")
    y = fluid.layers.data(name="y", shape=[5], dtype="float32")
    h = fluid.layers.fc(x, size=5, act="tanh")
    i = fluid.layers.fill_constant(shape=[1], dtype="int64", value=0)
    n = fluid.layers.fill_constant(shape=[1], dtype="int64", value=3)
    i.stop_gradient = True
    array = fluid.layers.array_write(h, i)
    more = fluid.layers.less_than(x=i, y=n)
    loop = fluid.layers.While(cond=more)
    with loop.block():
        last = fluid.layers.array_read(array, i)
        following = fluid.layers.elementwise_add(fluid.layers.scale(last, 0.5), h)
        fluid.layers.increment(i, value=1, in_place=True)
        fluid.layers.array_write(following, i, array=array)
        fluid.layers.less_than(x=i, y=n, cond=more)
    out = fluid.layers.array_read(array, n)
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y)), [out]


def normed(fluid: Any, x: Any, channels: int, size: int, stride: int, act: Any) -> Any:
    """A convolution without bias, and a batch norm with the activation."""
    y = fluid.layers.conv2d(
        x, num_filters=channels, filter_size=size, stride=stride, padding=(size - 1) // 2,
        groups=1, bias_attr=False,
    )  # fmt: skip
    return fluid.layers.batch_norm(y, act=act)


def sentences(fluid: Any) -> tuple[Any, Any]:
    """The variables of sentences and their labels."""
    words = fluid.layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    return words, fluid.layers.data(name="label", shape=[1], dtype="int64")


def cross_entropy(fluid: Any, chances: Any, label: Any) -> Any:
    """The mean cross entropy of a batch."""
    return fluid.layers.mean(fluid.layers.cross_entropy(input=chances, label=label))


MODELS = {
    model.__name__: model
    for model in (
        word2vec, ctr_wide_deep, mobilenet_block, transformer_encoder, sentiment_conv,
        sentiment_stacked_lstm, tagger_gru_crf, static_rnn_lm, while_power,
    )
}  # fmt: skip
