"""Sentiment analysis of reviews: convolutions over words, or stacked LSTMs in both directions.

    python examples/understand_sentiment.py [--model conv|stacked_lstm]
        [--steps N] [--data FOLDER] [--save FOLDER]

Without `--data` the reviews are synthetic: `not` negates the next word; with it they are those of
`imdb` in that folder. Reviews of all lengths are one batch.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

STEPS = 150
FALLS = 10  # Required reduction of the loss.
KINDS = ["good great fine fresh", "bad dull weak stale", "not", "the a film plot cast end it was"]
WORDS = " ".join(KINDS).split()


def conv(words, size):
    """Max pooling over filters of three and of four consecutive words."""
    vectors = fluid.layers.embedding(words, [size, 32], is_sparse=True)
    pooled = [
        fluid.nets.sequence_conv_pool(vectors, 32, width, act="tanh", pool_type="sqrt")
        for width in (3, 4)
    ]
    return fluid.layers.fc(pooled, size=2, act="softmax")


def stacked_lstm(words, size, depth=3, width=64):
    """Stacked LSTMs with alternating directions."""
    vectors = fluid.layers.embedding(words, [size, 32], is_sparse=True)
    inputs = [vectors]
    for level in range(depth):
        mixed = fluid.layers.fc(inputs, size=width)
        states, _ = fluid.layers.dynamic_lstm(mixed, size=width, is_reverse=level % 2 == 1)
        inputs = [mixed, states]
    best = [fluid.layers.sequence_pool(sequence, "max") for sequence in inputs]
    return fluid.layers.fc(best, size=2, act="softmax")


def reviews():
    """Generate reviews: their word ids, and the label, 0 for praise or 1."""
    draw = np.random.default_rng(0)
    kinds = [kind.split() for kind in KINDS]
    while True:
        words = [str(draw.choice(kinds[3])) for _ in range(draw.integers(3, 12))]
        praise, turned = (bool(value) for value in draw.integers(0, 2, 2))
        opinion = str(draw.choice(kinds[0 if praise != turned else 1]))
        words[draw.integers(len(words))] = f"not {opinion}" if turned else opinion
        yield [WORDS.index(word) for word in " ".join(words).split()], int(not praise)


def data_of(folder):
    """Return the number of words, a training reader, and a test reader."""
    if folder is None:
        return len(WORDS), lambda: islice(reviews(), 2000), lambda: islice(reviews(), 2000, 2200)
    dataset.common.DATA_HOME = folder
    numbers = dataset.imdb.word_dict()
    return len(numbers), dataset.imdb.train(numbers), dataset.imdb.test(numbers)


def train(steps=STEPS, folder=None, model=conv, save=None):
    """Train on `steps` batches, print the test accuracy, and return the losses."""
    size, learnt, tested = data_of(folder)
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    label = fluid.data("label", [None, 1], "int64")
    guess = model(words, size)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, label))
    accuracy = fluid.layers.accuracy(guess, label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.02).minimize(loss)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([words, label], place)
    batches = batch(reader.shuffle(learnt, buf_size=25000), batch_size=50)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (value,) = executor.run(feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(value))
            if len(losses) % 25 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    rates = [
        executor.run(test_program, feed=feeder.feed(rows), fetch_list=[accuracy])[0]
        for rows in batch(tested, batch_size=100)()
    ]
    print(f"classifies {np.mean(rates):.1%} of the test reviews correctly")
    if save:
        fluid.io.save_inference_model(save, ["words"], [guess], executor, test_program)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["conv", "stacked_lstm"], default="conv")
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above imdb")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, globals()[given.model], save=given.save)
