"""A script in the style of Paddle 1.8: a CRNN that reads text lines, with CTC.

It uses a GPU by default: `fluid run --cpu ocr.py --use_gpu True`.
"""

import argparse
import distutils.util
import json

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--use_gpu", type=distutils.util.strtobool, default=False)
args = parser.parse_args()
CLASSES = 5


def conv_bn_pool(input, out_ch, pool=True, is_test=False):
    tmp = fluid.layers.conv2d(
        input=input, num_filters=out_ch, filter_size=3, padding=1, bias_attr=False
    )
    tmp = fluid.layers.batch_norm(input=tmp, act="relu", is_test=is_test)
    return (
        fluid.layers.pool2d(input=tmp, pool_size=2, pool_type="max", pool_stride=2, ceil_mode=True)
        if pool
        else tmp
    )


def encoder_net(images):
    features = conv_bn_pool(conv_bn_pool(images, 4), 6)
    sliced = fluid.layers.im2sequence(
        input=features, stride=[1, 1], filter_size=[features.shape[2], 1]
    )
    fc_1, fc_2 = [fluid.layers.fc(input=sliced, size=8 * 3, bias_attr=False) for _ in range(2)]
    gru_forward = fluid.layers.dynamic_gru(input=fc_1, size=8, candidate_activation="relu")
    gru_backward = fluid.layers.dynamic_gru(
        input=fc_2, size=8, is_reverse=True, candidate_activation="relu"
    )
    return fluid.layers.fc(input=[gru_forward, gru_backward], size=CLASSES + 1)


images = fluid.layers.data(name="pixel", shape=[1, 8, 16], dtype="float32")
label = fluid.layers.data(name="label", shape=[1], dtype="int32", lod_level=1)
fc_out = encoder_net(images)
cost = fluid.layers.warpctc(input=fc_out, label=label, blank=CLASSES, norm_by_times=True)
sum_cost = fluid.layers.reduce_sum(cost)
decoded = fluid.layers.ctc_greedy_decoder(input=fc_out, blank=CLASSES)
casted = fluid.layers.cast(x=label, dtype="int64")
error, seq_num = fluid.layers.edit_distance(input=decoded, label=casted)
inference = fluid.default_main_program().clone(for_test=True)
rates = fluid.layers.piecewise_decay([2, 4], [0.05, 0.02, 0.01])
fluid.optimizer.Momentum(
    learning_rate=rates, momentum=0.9, regularization=fluid.regularizer.L2Decay(4e-4)
).minimize(sum_cost)

place = fluid.CUDAPlace(0) if args.use_gpu else fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(2)
for param in fluid.default_main_program().all_parameters():
    if not param.trainable:
        continue
    value = rng.uniform(-0.3, 0.3, param.shape).astype("float32")
    fluid.global_scope().find_var(param.name).get_tensor().set(value, place)


def get_feeder_data(n):
    lengths = rng.randint(1, 4, n).tolist()
    ids = rng.randint(0, CLASSES, (sum(lengths), 1)).astype("int32")
    target = fluid.LoDTensor()
    target.set(ids, place)
    target.set_recursive_sequence_lengths([lengths])
    pixels = fluid.LoDTensor()
    pixels.set(rng.rand(n, 1, 8, 16).astype("float32"), place)
    return {"pixel": pixels, "label": target}


told = []
for step in range(6):
    results = exe.run(feed=get_feeder_data(2 + step % 2), fetch_list=[sum_cost, error, seq_num])
    told += [float(results[0]), float(results[1].sum()), float(results[2])]
out = exe.run(
    inference, feed=get_feeder_data(2), fetch_list=[decoded, sum_cost], return_numpy=False
)
told += np.array(out[0]).ravel().tolist() + [float(np.array(out[1]).sum())]
print(json.dumps([float(each) for each in told]))
