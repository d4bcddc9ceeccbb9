import argparse
import os
import subprocess
import sys

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--model")
args = parser.parse_args()
here = os.path.dirname(os.path.abspath(__file__))

user = fluid.layers.data("user", [1], dtype="int64", lod_level=1)
seen = fluid.layers.data("seen", [1], dtype="int64", lod_level=1)
clicked = fluid.layers.data("clicked", [1], dtype="int64")
values = iter([np.linspace(-1, 1, n).astype("f") for n in (44, 124, 24, 3, 6, 2)])


def attr(shape):
    value = next(values).reshape(shape)
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(value))


rows = [
    fluid.layers.embedding(user, [11, 4], is_sparse=True, param_attr=attr((11, 4))),
    fluid.layers.embedding(seen, [31, 4], is_sparse=True, param_attr=attr((31, 4))),
]
pooled = fluid.layers.concat([fluid.layers.sequence_pool(row, "sum") for row in rows], 1)
hidden = fluid.layers.fc(pooled, 3, act="tanh", param_attr=attr((8, 3)), bias_attr=attr((3,)))
predicted = fluid.layers.fc(hidden, 2, act="softmax", param_attr=attr((3, 2)), bias_attr=attr((2,)))
loss = fluid.layers.mean(fluid.layers.cross_entropy(predicted, clicked))
total = fluid.layers.create_global_var([1], 0.0, "float32", True, name="total")
fluid.layers.assign(total + loss, total)
test = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adagrad(0.3).minimize(loss)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
dataset.set_use_var([user, seen, clicked])
dataset.set_batch_size(8)
dataset.set_thread(1)
dataset.set_filelist([os.path.join(args.data, name) for name in sorted(os.listdir(args.data))])
dataset.set_pipe_command("python %s" % os.path.join(here, "clicks_reader.py"))
losses = []
for _ in range(2):
    fluid.global_scope().find_var("total").get_tensor().set(np.zeros(1, "f"), fluid.CPUPlace())
    exe.train_from_dataset(fluid.default_main_program(), dataset)
    losses.append(float(np.array(fluid.global_scope().find_var("total").get_tensor())) / 8)
fluid.io.save_inference_model(args.model, ["user", "seen"], [predicted], exe, main_program=test)
lines = subprocess.check_output([sys.executable, "-c", "print(3)"])
assert int(lines) == 3
with open(os.path.join(args.model, "losses"), "w") as f:
    f.write("%s" % losses)
