"""A script as people wrote them for Paddle 1.8: a CTR model trained from files of slots."""

import json
import os
import tempfile

import numpy as np
import paddle.fluid as fluid

SLOTS, ROWS, WIDTH, DENSE = 3, 50, 4, 2


def write(path, seed):
    rng = np.random.RandomState(seed)
    with open(path, "w") as f:
        for _ in range(10):
            parts = ["%d %s" % (DENSE, " ".join("%.4f" % v for v in rng.rand(DENSE)))]
            total = 0
            for _ in range(SLOTS):
                ids = rng.randint(0, ROWS, rng.randint(1, 4))
                total += ids.sum()
                parts.append("%d %s" % (len(ids), " ".join(map(str, ids))))
            parts.append("1 %d" % (total % 2))
            f.write(" ".join(parts) + "\n")


def ctr_dnn_model():
    dense = fluid.layers.data(name="dense_input", shape=[DENSE], dtype="float32")
    slots = [
        fluid.layers.data(name="C%d" % i, shape=[1], lod_level=1, dtype="int64")
        for i in range(SLOTS)
    ]
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")

    def embedding_layer(input):
        emb = fluid.layers.embedding(
            input=input,
            is_sparse=True,
            size=[ROWS, WIDTH],
            param_attr=fluid.ParamAttr(name="SparseFeatFactors"),
        )
        return fluid.layers.sequence_pool(input=emb, pool_type="average")

    concated = fluid.layers.concat(list(map(embedding_layer, slots)) + [dense], axis=1)
    fc1 = fluid.layers.fc(input=concated, size=8, act="relu")
    predict = fluid.layers.fc(input=fc1, size=2, act="softmax")
    cost = fluid.layers.cross_entropy(input=predict, label=label)
    avg_cost = fluid.layers.reduce_sum(cost)
    acc = fluid.layers.accuracy(input=predict, label=label)
    auc, batch_auc, auc_states = fluid.layers.auc(
        input=predict, label=label, num_thresholds=2**8, slide_steps=20
    )
    return avg_cost, auc, acc, [dense] + slots + [label]


loss, auc, acc, inputs = ctr_dnn_model()
optimizer = fluid.optimizer.Adagrad(learning_rate=0.1)
optimizer.minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
scope = fluid.global_scope()
rng = np.random.RandomState(5)
names = [param.name for param in fluid.default_main_program().all_parameters()]
for param in fluid.default_main_program().all_parameters():
    if not param.trainable:
        continue
    value = rng.uniform(-0.3, 0.3, param.shape).astype("float32")
    scope.find_var(param.name).get_tensor().set(value, fluid.CPUPlace())

folder = tempfile.mkdtemp()
files = [os.path.join(folder, "part-%d" % i) for i in range(2)]
for i, path in enumerate(files):
    write(path, i)
told = []
for kind in ("QueueDataset", "InMemoryDataset"):
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_use_var(inputs)
    dataset.set_pipe_command("cat")
    dataset.set_batch_size(4)
    dataset.set_thread(1)
    dataset.set_filelist(files)
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    for epoch in range(2):
        exe.train_from_dataset(
            program=fluid.default_main_program(),
            dataset=dataset,
            fetch_list=[auc],
            fetch_info=["auc"],
            print_period=1000,
            debug=False,
        )
        told.append(float(np.abs(np.array(scope.find_var("SparseFeatFactors").get_tensor())).sum()))
told += [float(np.abs(np.array(scope.find_var(name).get_tensor())).sum()) for name in names]
print()
print(json.dumps([float(each) for each in told]))
