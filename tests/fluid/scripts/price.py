"""A script as people wrote them for Paddle 1.8: uci_housing, paddle.batch, an inference model."""

import argparse
import sys

import numpy
import paddle
import paddle.fluid as fluid
import paddle.fluid.layers.ops as ops
from paddle.fluid.layers.learning_rate_scheduler import _decay_step_counter

parser = argparse.ArgumentParser()
parser.add_argument("--passes", type=int, default=20)
parser.add_argument("--out", default="price.model")
args = parser.parse_args()


def decayed(rate):
    step = _decay_step_counter()
    return rate / ops.sqrt(1.0 + step * 0.01)


x = fluid.layers.data(name="x", shape=[13], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
y_predict = fluid.layers.fc(input=x, size=1, act=None)
avg_loss = fluid.layers.mean(fluid.layers.square_error_cost(input=y_predict, label=y))
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.SGD(learning_rate=decayed(0.05)).minimize(avg_loss)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
feeder = fluid.DataFeeder(place=place, feed_list=["x", "y"])
train_reader = paddle.batch(
    paddle.reader.shuffle(paddle.dataset.uci_housing.train(), buf_size=500), batch_size=8
)

losses = []
for pass_id in range(args.passes):
    for data in train_reader():
        (loss,) = exe.run(feed=feeder.feed(data), fetch_list=[avg_loss])
        losses.append(float(loss))
    if pass_id % 10 == 0:
        print("pass %d: %f" % (pass_id, loss))
print("first %f, last %f" % (losses[0], losses[-1]))
fluid.io.save_inference_model(args.out, ["x"], [y_predict], exe)

inference_scope = fluid.core.Scope()
with fluid.scope_guard(inference_scope):
    [program, feeds, fetches] = fluid.io.load_inference_model(args.out, exe)
    data = next(paddle.batch(paddle.dataset.uci_housing.test(), batch_size=4)())
    feed_x = numpy.array([row[0] for row in data]).astype(numpy.float32)
    results = exe.run(program, feed={feeds[0]: feed_x}, fetch_list=fetches)
    assert results[0].shape == (4, 1)
    print("sizes %s of type %s" % (results[0].shape, numpy.dtype(numpy.float)))
sys.exit(0 if losses[-1] < losses[0] / 2 else 1)
