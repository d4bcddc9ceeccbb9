"""A script as people wrote them for Paddle 1.8: imdb, sequences, readers in threads."""

import re

import numpy as np
import paddle
import paddle.compat as cpt
import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.fluid.framework import Program, program_guard

words = paddle.dataset.imdb.build_dict(re.compile(r"aclImdb/train/.*/.*\.txt$"), 0)
print("%d words, one is %s" % (len(words), cpt.to_text(sorted(words, key=words.get)[0])))


def doubled(sample):
    return sample[0] + sample[0], sample[1]


train_reader = paddle.reader.xmap_readers(doubled, paddle.dataset.imdb.train(words), 2, 8)
test_reader = paddle.reader.compose(paddle.dataset.imdb.test(words), lambda: range(2))

main, startup = Program(), Program()
main.random_seed = startup.random_seed = 7
with program_guard(main, startup):
    data = layers.data(name="words", shape=[1], dtype="int64", lod_level=1)
    label = layers.data(name="label", shape=[1], dtype="int64")
    emb = layers.embedding(input=data, size=[len(words), 8], is_sparse=True)
    conv = fluid.nets.sequence_conv_pool(emb, num_filters=8, filter_size=3, pool_type="sqrt")
    prediction = layers.fc(input=[conv], size=2, act="softmax")
    avg_cost = layers.mean(layers.cross_entropy(input=prediction, label=label))
    inference = main.clone(for_test=True)
    fluid.optimizer.Adagrad(learning_rate=0.1).minimize(avg_cost)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(startup)
feeder = fluid.DataFeeder(["words", "label"], place, program=main)
costs = []
for _ in range(30):
    for batch in paddle.batch(train_reader, batch_size=2)():
        (cost,) = exe.run(main, feed=feeder.feed(batch), fetch_list=[avg_cost])
        costs.append(np.array(cost).mean())
print("from %.3f to %.3f" % (costs[0], costs[-1]))
assert costs[-1] < costs[0] / 5

samples = [sample[:2] for sample in test_reader()]
(found,) = exe.run(inference, feed=feeder.feed(samples), fetch_list=[prediction])
print("classes", found.argmax(axis=1).tolist())
