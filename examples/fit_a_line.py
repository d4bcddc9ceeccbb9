"""House prices from 13 features: linear regression.

    python examples/fit_a_line.py [--steps N] [--data FOLDER] [--save FOLDER]

Without `--data` the houses are synthetic; with it they are those of `uci_housing` in that folder.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

STEPS = 300
FALLS = 1000  # Required reduction of the loss.


def houses():
    """Generate houses whose prices are a linear function of their features, plus noise."""
    draw = np.random.default_rng(0)
    worth = draw.normal(size=13) * 5
    for _ in range(500):
        numbers = draw.uniform(-0.5, 0.5, 13)
        yield numbers, [22.5 + numbers @ worth + draw.normal() * 0.1]


def data_of(folder):
    """Return a reader for training and one for testing."""
    if folder is None:
        return lambda: islice(houses(), 400), lambda: islice(houses(), 400, None)
    dataset.common.DATA_HOME = folder
    return dataset.uci_housing.train(), dataset.uci_housing.test()


def train(steps=STEPS, folder=None, save=None):
    """Train on `steps` batches, price five other houses, and return the losses."""
    features = fluid.data("features", [None, 13], "float32")
    price = fluid.data("price", [None, 1], "float32")
    guess = fluid.layers.fc(features, size=1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, price))
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(learning_rate=0.5).minimize(loss)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([features, price], place)
    learnt, tested = data_of(folder)
    batches = batch(reader.shuffle(learnt, buf_size=500), batch_size=20)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (value,) = executor.run(feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(value))
            if len(losses) % 50 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    some = feeder.feed(list(islice(tested(), 5)))
    guesses, prices = executor.run(test_program, feed=some, fetch_list=[guess, price])
    for pair in zip(guesses.ravel(), prices.ravel(), strict=True):
        print("predicted {:6.2f}, actual {:6.2f}".format(*pair))
    if save:
        fluid.io.save_inference_model(save, ["features"], [guess], executor, test_program)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above uci_housing")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, save=given.save)
