"""A script as people wrote them for Paddle 1.8: word vectors by nce, and a DSSM of sampled softmax.

What is drawn is given, so that numbers are the same each time.
"""

import json

import numpy as np
import paddle.fluid as fluid

VOCAB, WIDTH = 20, 6
rng = np.random.RandomState(9)


def skip_gram():
    word = fluid.layers.data(name="input_word", shape=[1], dtype="int64")
    predict = fluid.layers.data(name="predict_word", shape=[1], dtype="int64")
    emb = fluid.layers.embedding(
        word, size=[VOCAB, WIDTH], is_sparse=True, param_attr=fluid.ParamAttr(name="embeding")
    )
    always_three = [1.0 if i == 3 else 0.0 for i in range(VOCAB)]
    cost = fluid.layers.nce(
        num_total_classes=VOCAB,
        input=emb,
        label=predict,
        num_neg_samples=2,
        sampler="custom_dist",
        custom_dist=always_three,
        param_attr=fluid.ParamAttr(name="nce_w"),
        bias_attr="nce_b",
    )
    loss = fluid.layers.reduce_mean(cost)
    rate = fluid.layers.exponential_decay(
        learning_rate=0.5, decay_steps=2, decay_rate=0.9, staircase=True
    )
    fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    return loss


def dssm():
    query = fluid.layers.data(name="query", shape=[1], dtype="int64", lod_level=1)
    clicked = fluid.layers.data(name="clicked", shape=[1], dtype="int64")
    samples = fluid.layers.data(name="samples", shape=[4], dtype="int64")
    chances = fluid.layers.data(name="chances", shape=[4], dtype="float32")
    emb = fluid.layers.embedding(
        query, size=[VOCAB, WIDTH], param_attr=fluid.ParamAttr(name="query_emb")
    )
    vector = fluid.layers.fc(fluid.layers.sequence_pool(emb, "sum"), WIDTH, act="tanh")
    other = fluid.layers.embedding(
        clicked, size=[VOCAB, WIDTH], param_attr=fluid.ParamAttr(name="doc_emb")
    )
    score = fluid.layers.cos_sim(vector, other)
    logits = fluid.layers.fc(vector, VOCAB)
    softmax = fluid.layers.sampled_softmax_with_cross_entropy(
        logits,
        clicked,
        num_samples=3,
        use_customized_samples=True,
        customized_samples=samples,
        customized_probabilities=chances,
        remove_accidental_hits=True,
    )
    loss = fluid.layers.mean(softmax) + fluid.layers.mean(fluid.layers.square(score - 1.0))
    fluid.optimizer.Adam(learning_rate=0.05).minimize(loss)
    return loss


def initialised(exe, main, startup):
    exe.run(startup)
    for param in main.all_parameters():
        if not param.trainable or param.name.startswith("nce_0"):
            continue
        value = rng.uniform(-0.5, 0.5, param.shape).astype("float32")
        fluid.global_scope().find_var(param.name).get_tensor().set(value, fluid.CPUPlace())


exe = fluid.Executor(fluid.CPUPlace())
told = []
first, first_startup = fluid.Program(), fluid.Program()
with fluid.program_guard(first, first_startup):
    loss = skip_gram()
initialised(exe, first, first_startup)
for _ in range(5):
    feed = {
        name: rng.randint(0, VOCAB, (6, 1)).astype("int64")
        for name in ("input_word", "predict_word")
    }
    told.append(float(exe.run(first, feed=feed, fetch_list=[loss.name])[0]))
told.append(float(np.abs(np.array(fluid.global_scope().find_var("embeding").get_tensor())).sum()))

second, second_startup = fluid.Program(), fluid.Program()
with fluid.program_guard(second, second_startup):
    loss = dssm()
initialised(exe, second, second_startup)
for _ in range(5):
    lengths = rng.randint(1, 5, 3).tolist()
    clicked = rng.randint(0, VOCAB, (3, 1)).astype("int64")
    samples = np.concatenate(
        [clicked, np.tile(rng.choice(VOCAB, 3, replace=False), (3, 1))], axis=1
    )
    feed = {
        "query": fluid.create_lod_tensor(
            rng.randint(0, VOCAB, (sum(lengths), 1)).astype("int64"), [lengths], exe.place
        ),
        "clicked": clicked,
        "samples": samples.astype("int64"),
        "chances": np.full((3, 4), 1.0 / VOCAB, "float32"),
    }
    told.append(float(exe.run(second, feed=feed, fetch_list=[loss])[0]))
print(json.dumps(told))
