"""A script as people wrote them for Paddle 1.8: translation with attention, and a beam in a While.

Training and decoding share parameters by their names. Sentences are the same in every run.
"""

import json

import numpy as np
import paddle.fluid as fluid
import paddle.fluid.layers as pd

VOCAB, WORD, HIDDEN, BEAM, LONGEST = 12, 6, 8, 2, 4
START, END = 0, 1
rng = np.random.RandomState(4)


def named(name):
    return fluid.ParamAttr(name=name)


def encoder():
    source = pd.data(name="source", shape=[1], dtype="int64", lod_level=1)
    words = pd.embedding(source, size=[VOCAB, WORD], param_attr=named("words"))
    gates = pd.fc(
        words, size=HIDDEN * 4, act="tanh", param_attr=named("gates"), bias_attr="gates_b"
    )
    states, _ = pd.dynamic_lstm(
        gates, size=HIDDEN * 4, param_attr=named("lstm"), bias_attr="lstm_b", use_peepholes=False
    )
    return states, pd.sequence_last_step(states)


def attention(states, state):
    wide = pd.sequence_expand(x=state, y=states)
    joined = pd.concat([states, wide], axis=1)
    scores = pd.fc(joined, size=1, act="tanh", param_attr=named("scores"), bias_attr=False)
    weights = pd.reshape(pd.sequence_softmax(scores), shape=[-1])
    return pd.sequence_pool(pd.elementwise_mul(x=states, y=weights, axis=0), pool_type="sum")


def step(states, word, state):
    inputs = [state, word, attention(states, state)]
    weights = [named("step_%d" % i) for i in range(3)]
    new = pd.fc(inputs, size=HIDDEN, act="tanh", param_attr=weights, bias_attr="step_b")
    return new, pd.fc(new, VOCAB, act="softmax", param_attr=named("out"), bias_attr="out_b")


def train():
    states, last = encoder()
    states.stop_gradient = last.stop_gradient = True  # which release 1.8.5 computes wrongly
    target = pd.data(name="target", shape=[1], dtype="int64", lod_level=1)
    following = pd.data(name="following", shape=[1], dtype="int64", lod_level=1)
    words = pd.embedding(target, size=[VOCAB, WORD], param_attr=named("target_words"))
    rnn = pd.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        kept = rnn.static_input(states)
        state = rnn.memory(init=last, need_reorder=True)
        new, chances = step(kept, word, state)
        rnn.update_memory(state, new)
        rnn.output(chances)
    loss = pd.mean(pd.cross_entropy(input=rnn(), label=following))
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(5.0))
    rate = pd.exponential_decay(0.05, decay_steps=4, decay_rate=0.8)
    fluid.optimizer.Adam(rate, regularization=fluid.regularizer.L2Decay(1e-4)).minimize(loss)
    return loss


def decode():
    states, last = encoder()
    counter = pd.zeros(shape=[1], dtype="int64", force_cpu=True)
    longest = pd.fill_constant(shape=[1], dtype="int64", value=LONGEST)
    first_ids = pd.data(name="first_ids", shape=[1], dtype="int64", lod_level=2)
    first_scores = pd.data(name="first_scores", shape=[1], dtype="float32", lod_level=2)
    kept, around = pd.array_write(last, i=counter), pd.array_write(states, i=counter)
    ids, scores = pd.array_write(first_ids, i=counter), pd.array_write(first_scores, i=counter)
    going = pd.less_than(x=counter, y=longest)
    loop = pd.While(cond=going)
    with loop.block():
        before_ids, before = pd.array_read(ids, i=counter), pd.array_read(scores, i=counter)
        state = pd.sequence_expand(pd.array_read(kept, i=counter), before)
        word = pd.embedding(before_ids, size=[VOCAB, WORD], param_attr=named("target_words"))
        source = pd.sequence_expand(pd.array_read(around, i=counter), before)
        new, chances = step(source, word, state)
        best, which = pd.topk(pd.lod_reset(chances, before), k=4)
        total = pd.elementwise_add(pd.log(best), pd.reshape(before, shape=[-1]), axis=0)
        chosen, chosen_scores = pd.beam_search(
            before_ids, before, which, total, BEAM, end_id=END, level=0
        )
        pd.increment(x=counter, value=1, in_place=True)
        pd.array_write(new, array=kept, i=counter)
        pd.array_write(source, array=around, i=counter)
        pd.array_write(chosen, array=ids, i=counter)
        pd.array_write(chosen_scores, array=scores, i=counter)
        more = pd.logical_not(pd.is_empty(x=chosen))
        pd.logical_and(x=pd.less_than(x=counter, y=longest), y=more, out=going)
    return pd.beam_search_decode(ids=ids, scores=scores, beam_size=BEAM, end_id=END)


def sequences(lists):
    flat = np.array([[word] for items in lists for word in items], "int64")
    return fluid.create_lod_tensor(flat, [[len(items) for items in lists]], fluid.CPUPlace())


def batch():
    sources = [rng.randint(2, VOCAB, rng.randint(1, 5)).tolist() for _ in range(3)]
    targets = [[word for word in source[::-1]] for source in sources]
    return {
        "source": sequences(sources),
        "target": sequences([[START, *target] for target in targets]),
        "following": sequences([[*target, END] for target in targets]),
    }


exe = fluid.Executor(fluid.CPUPlace())
main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup), fluid.unique_name.guard():
    loss = train()
exe.run(startup)
for param in sorted(main.all_parameters(), key=lambda each: each.name):
    value = rng.uniform(-0.5, 0.5, param.shape).astype("float32")
    fluid.global_scope().find_var(param.name).get_tensor().set(value, fluid.CPUPlace())
told = [float(exe.run(main, feed=batch(), fetch_list=[loss])[0]) for _ in range(12)]

beam = fluid.Program()
with fluid.program_guard(beam, fluid.Program()), fluid.unique_name.guard():
    found = decode()
feed = {
    "source": batch()["source"],
    "first_ids": fluid.create_lod_tensor(np.full((3, 1), START, "int64"), [[1] * 3] * 2, exe.place),
    "first_scores": fluid.create_lod_tensor(np.zeros((3, 1), "float32"), [[1] * 3] * 2, exe.place),
}
ids, scores = exe.run(beam, feed=feed, fetch_list=list(found), return_numpy=False)
told += [float(n) for level in ids.lod() for n in level]
told += np.array(ids).ravel().astype(float).tolist() + np.array(scores).ravel().tolist()
print(json.dumps(told))
