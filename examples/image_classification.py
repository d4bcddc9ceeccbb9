"""Image classification: a VGG or a residual network, with batch normalisation.

    python examples/image_classification.py [--model vgg|resnet]
        [--steps N] [--devices N] [--data FOLDER] [--save FOLDER]

Without `--data` the images are synthetic: stripes, checks and discs of 16×16 pixels in any colours;
with it they are those of `cifar` in that folder, ten classes of 32×32 pixels.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

STEPS = 100
FALLS = 4  # Required reduction of the loss.


def vgg(picture, classes):
    """Two groups of convolutions, each followed by pooling, and a hidden layer."""
    for filters, convolutions in ((16, 2), (32, 2)):
        picture = fluid.nets.img_conv_group(
            picture,
            conv_num_filter=[filters] * convolutions,
            conv_act="relu",
            conv_with_batchnorm=True,
            pool_size=2,
            pool_stride=2,
        )
    hidden = fluid.layers.fc(fluid.layers.dropout(picture, 0.5), size=64)
    hidden = fluid.layers.batch_norm(hidden, act="relu")
    return fluid.layers.fc(hidden, size=classes, act="softmax")


def resnet(picture, classes):
    """Three residual blocks of 8, 16 and 32 filters and the mean of each filter."""
    picture = normed(picture, 8, size=3, act="relu")
    for filters, stride in ((8, 1), (16, 2), (32, 2)):
        picture = residual(picture, filters, stride)
    means = fluid.layers.pool2d(picture, pool_type="avg", global_pooling=True)
    return fluid.layers.fc(means, size=classes, act="softmax")


def residual(picture, filters, stride):
    """Two convolutions with a shortcut, downsampled if required."""
    inner = normed(picture, filters, size=3, stride=stride, act="relu")
    inner = normed(inner, filters, size=3)
    if stride > 1:
        picture = normed(picture, filters, size=1, stride=stride)
    return fluid.layers.elementwise_add(inner, picture, act="relu")


def normed(picture, filters, size, stride=1, act=None):
    """Apply a convolution and batch normalisation."""
    convolved = fluid.layers.conv2d(
        picture, filters, size, stride, padding=(size - 1) // 2, bias_attr=False
    )
    return fluid.layers.batch_norm(convolved, act=act)


def drawings(seed, side=16):
    """Generate images forever: horizontal, vertical and slanted stripes, checks, discs, in two
    colours.
    """
    draw = np.random.default_rng(seed)
    while True:
        row, column = np.indices((side, side)) + draw.integers(0, side, (2, 1, 1))
        inside = np.hypot(row - row.mean(), column - column.mean()) < draw.uniform(4, 7)
        kinds = [row // 2 % 2, column // 2 % 2, (row + column) // 2 % 2]
        kinds += [(row // 4 + column // 4) % 2, inside]
        kind = draw.integers(len(kinds))
        paint, ground = draw.random((2, 3, 1, 1))
        picture = np.where(kinds[kind], paint, ground) + draw.normal(0, 0.05, (3, side, side))
        yield picture.astype(np.float32).ravel(), int(kind)


def data_of(folder):
    """Return a training reader, a test reader, the image size in pixels, and the number of
    classes.
    """
    if folder is None:
        return lambda: drawings(0), lambda: islice(drawings(1), 200), 16, 5
    dataset.common.DATA_HOME = folder
    return dataset.cifar.train10(cycle=True), dataset.cifar.test10(), 32, 10


def on_devices(program, loss, devices):
    """Train a program on `devices` CPU devices, which share each batch and its statistics."""
    strategy = fluid.BuildStrategy()
    strategy.sync_batch_norm = True
    places = fluid.cpu_places(devices)
    return fluid.CompiledProgram(program).with_data_parallel(loss.name, strategy, places=places)


def train(steps=STEPS, folder=None, model=resnet, save=None, devices=1):
    """Train on `steps` batches, print the test accuracy, and return the losses."""
    learnt, tested, side, classes = data_of(folder)
    pixels = fluid.data("pixels", [None, 3 * side * side], "float32")
    label = fluid.data("label", [None, 1], "int64")
    guess = model(fluid.layers.reshape(pixels, [-1, 3, side, side]), classes)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, label))
    accuracy = fluid.layers.accuracy(guess, label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.005).minimize(loss)
    program = on_devices(fluid.default_main_program(), loss, devices)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([pixels, label], place)
    batches = batch(reader.shuffle(learnt, buf_size=500), batch_size=32)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (values,) = executor.run(program, feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(np.mean(values)))  # one of each device
            if len(losses) % 10 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    rates = [
        executor.run(test_program, feed=feeder.feed(rows), fetch_list=[accuracy])[0]
        for rows in batch(tested, batch_size=50)()
    ]
    print(f"classifies {np.mean(rates):.1%} of the test images correctly")
    if save:
        fluid.io.save_inference_model(save, ["pixels"], [guess], executor, test_program)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["vgg", "resnet"], default="resnet", help="the network")
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--devices", type=int, default=1, help="processes that share each batch")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above cifar")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, globals()[given.model], given.save, given.devices)
