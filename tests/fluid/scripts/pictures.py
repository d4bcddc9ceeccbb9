"""A script as people wrote them for Paddle 1.8: mnist and cifar, readers made of readers."""

import numpy as np
import paddle
import paddle.dataset.cifar as cifar
import paddle.dataset.mnist as mnist
import paddle.fluid as fluid
import paddle.fluid.core as core
from paddle.fluid.param_attr import ParamAttr
from paddle.reader.decorator import buffered, map_readers

BATCH_SIZE = 20


def convolutional_neural_network(img):
    conv_pool_1 = fluid.nets.simple_img_conv_pool(
        input=img,
        filter_size=5,
        num_filters=4,
        pool_size=2,
        pool_stride=2,
        act="relu",
        param_attr=ParamAttr(initializer=fluid.initializer.MSRA()),
    )
    conv_pool_1 = fluid.layers.batch_norm(conv_pool_1)
    return fluid.layers.fc(input=conv_pool_1, size=10, act="softmax")


def train(channels, side, reader):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        img = fluid.layers.data("img", shape=[channels, side, side], dtype="float32")
        label = fluid.layers.data("label", shape=[1], dtype="int64")
        cost = fluid.layers.cross_entropy(convolutional_neural_network(img), label)
        avg_cost = fluid.layers.mean(cost)
        fluid.optimizer.Adam(learning_rate=0.01).minimize(avg_cost)

    use_cuda = core.is_compiled_with_cuda()
    place = core.CUDAPlace(0) if use_cuda else core.CPUPlace()
    exe = fluid.Executor(place)
    exe.run(startup)
    costs = []
    for _ in range(6):
        for data in paddle.batch(reader, BATCH_SIZE)():
            pixels = np.array([x[0] for x in data]).reshape((-1, channels, side, side))
            labels = np.array([x[1] for x in data]).astype("int64").reshape(-1, 1)
            feed = {"img": pixels.astype("float32"), "label": labels}
            costs.append(exe.run(main, feed=feed, fetch_list=[avg_cost])[0][0])
    return costs


digits = buffered(paddle.reader.firstn(mnist.train(), 80), size=40)
both = paddle.reader.chain(cifar.train10(), cifar.test10())
pictures = paddle.reader.cache(map_readers(lambda sample: (sample[0] * 2 - 1, sample[1]), both))
for name, costs in (("mnist", train(1, 28, digits)), ("cifar", train(3, 32, pictures))):
    print("%s: from %.3f to %.3f" % (name, costs[0], costs[-1]))
    assert costs[-1] < costs[0] / 2, costs
