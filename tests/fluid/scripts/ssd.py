"""A script as people wrote them for Paddle 1.8: SSD, with boxes of ground truth as sequences."""

import json

import numpy as np
import paddle.fluid as fluid

CLASSES, SIDE = 4, 32


def mobile_net(img):
    def conv_bn(x, channels, stride, groups=1):
        y = fluid.layers.conv2d(
            x,
            channels,
            3,
            stride=stride,
            padding=1,
            groups=groups,
            use_cudnn=False,
            bias_attr=False,
        )
        return fluid.layers.batch_norm(y, act="relu")

    def depthwise(x, channels, stride):
        y = conv_bn(x, x.shape[1], stride, groups=x.shape[1])
        return fluid.layers.relu(fluid.layers.conv2d(y, channels, 1))

    one = depthwise(conv_bn(img, 4, 2), 6, 2)
    two = depthwise(one, 8, 2)
    return fluid.layers.multi_box_head(
        inputs=[one, two],
        image=img,
        num_classes=CLASSES,
        min_ratio=20,
        max_ratio=90,
        min_sizes=[8.0, 14.0],
        max_sizes=[[], 24.0],
        aspect_ratios=[[2.0], [2.0, 3.0]],
        base_size=SIDE,
        offset=0.5,
        flip=True,
    )


image = fluid.layers.data(name="image", shape=[3, SIDE, SIDE], dtype="float32")
gt_box = fluid.layers.data(name="gt_box", shape=[4], dtype="float32", lod_level=1)
gt_label = fluid.layers.data(name="gt_label", shape=[1], dtype="int32", lod_level=1)
difficult = fluid.layers.data(name="gt_difficult", shape=[1], dtype="int32", lod_level=1)
locs, confs, box, box_var = mobile_net(image)
nmsed_out = fluid.layers.detection_output(locs, confs, box, box_var, nms_threshold=0.45)
test_program = fluid.default_main_program().clone(for_test=True)
with fluid.program_guard(test_program):
    map_eval = fluid.metrics.DetectionMAP(
        nmsed_out,
        gt_label,
        gt_box,
        difficult,
        CLASSES,
        overlap_threshold=0.5,
        evaluate_difficult=False,
        ap_version="11point",
    )
    cur_map, accum_map = map_eval.get_map_var()
loss = fluid.layers.reduce_sum(fluid.layers.ssd_loss(locs, confs, gt_box, gt_label, box, box_var))
optimizer = fluid.optimizer.RMSProp(
    learning_rate=fluid.layers.piecewise_decay([3, 5], [0.005, 0.001, 0.0005]),
    regularization=fluid.regularizer.L2Decay(0.00005),
)
optimizer.minimize(loss)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())
rng = np.random.RandomState(4)
for param in fluid.default_main_program().all_parameters():
    if not param.trainable:
        continue
    value = rng.uniform(-0.3, 0.3, param.shape).astype("float32")
    fluid.global_scope().find_var(param.name).get_tensor().set(value, place)


def batch(n):
    for _ in range(n):
        count = rng.randint(1, 4)
        low = rng.uniform(0, 0.5, (count, 2))
        high = low + rng.uniform(0.2, 0.45, (count, 2))
        boxes = np.concatenate([low, high], axis=1).astype("float32")
        labels = rng.randint(1, CLASSES, count).astype("int32")
        yield rng.randn(3, SIDE, SIDE).astype("float32"), boxes, labels, np.zeros(count, "int32")


feeder = fluid.DataFeeder([image, gt_box, gt_label, difficult], place)
told = []
for step in range(4):
    fed = feeder.feed(list(batch(2)))
    told.append(
        float(
            exe.run(feed={n: fed[n] for n in ("image", "gt_box", "gt_label")}, fetch_list=[loss])[0]
        )
    )
map_eval.reset(exe)
for _ in range(2):
    now, accum = exe.run(
        test_program, feed=feeder.feed(list(batch(2))), fetch_list=[cur_map, accum_map]
    )
    told += [float(now), float(accum)]
print(json.dumps(told))
