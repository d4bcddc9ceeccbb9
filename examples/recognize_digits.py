"""Digit recognition: a perceptron with two hidden layers, or two convolutions.

    python examples/recognize_digits.py [--model mlp|conv]
        [--steps N] [--data FOLDER] [--save FOLDER]

Without `--data` the digits are the 1,797 of 8×8 pixels included in this package; with it they
are those of `mnist` in that folder, 28×28 pixels.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

STEPS = 200
FALLS = 20  # Required reduction of the loss.
DIGITS = Path(fluid.__file__).parent / "demo" / "data" / "digits.npz"


def mlp(picture):
    """Two hidden layers; the probability of each digit."""
    hidden = fluid.layers.fc(picture, size=128, act="relu")
    hidden = fluid.layers.fc(hidden, size=64, act="relu")
    return fluid.layers.fc(hidden, size=10, act="softmax")


def conv(picture):
    """Two convolutions, each followed by pooling; the probability of each digit."""
    for filters in (20, 50):
        picture = fluid.nets.simple_img_conv_pool(
            picture, filters, filter_size=5, pool_size=2, pool_stride=2, act="relu", conv_padding=2
        )
    return fluid.layers.fc(picture, size=10, act="softmax")


def small_digits():
    """Read the digits of this package: pixels of -1 to 1, and the label."""
    with np.load(DIGITS) as file:
        for pixels, digit in zip(file["images"], file["labels"], strict=True):
            yield pixels.ravel() / np.float32(8) - 1, int(digit)


def data_of(folder):
    """Return a training reader, a test reader, and the image size in pixels."""
    if folder is None:
        return lambda: islice(small_digits(), 1500), lambda: islice(small_digits(), 1500, None), 8
    dataset.common.DATA_HOME = folder
    return dataset.mnist.train(), dataset.mnist.test(), 28


def train(steps=STEPS, folder=None, model=conv, save=None):
    """Train on `steps` batches, print the test accuracy, and return the losses."""
    learnt, tested, side = data_of(folder)
    pixels = fluid.data("pixels", [None, side * side], "float32")
    digit = fluid.data("digit", [None, 1], "int64")
    guess = model(fluid.layers.reshape(pixels, [-1, 1, side, side]))
    loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, digit))
    accuracy = fluid.layers.accuracy(guess, digit)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.002).minimize(loss)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([pixels, digit], place)
    batches = batch(reader.shuffle(learnt, buf_size=1500), batch_size=64)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (value,) = executor.run(feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(value))
            if len(losses) % 25 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    rates = [
        executor.run(test_program, feed=feeder.feed(rows), fetch_list=[accuracy])[0]
        for rows in batch(tested, batch_size=99)()
    ]
    print(f"classifies {np.mean(rates):.1%} of the test digits correctly")
    if save:
        fluid.io.save_inference_model(save, ["pixels"], [guess], executor, test_program)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["mlp", "conv"], default="conv", help="the network")
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above mnist")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, globals()[given.model], save=given.save)
