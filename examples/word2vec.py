"""Word embeddings, trained to predict a word from the four before it.

    python examples/word2vec.py [--steps N] [--data FOLDER] [--save FOLDER]

Without `--data` the sentences are synthetic, of a few words; with it they are those of `imikolov`
in that folder.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

STEPS = 300
FALLS = 4  # Required reduction of the loss; some words are unpredictable.
WORDS, SIZE = 5, 16
KINDS = ["the", "small big old", "cat dog bird", "sees hears likes", "the", "fish mouse worm"]


def sentences():
    """Generate sentences: each word is of the next kind."""
    draw = np.random.default_rng(0)
    for _ in range(500):
        yield ["<s>", *(draw.choice(kind.split()) for kind in KINDS), "<e>"]


def data_of(folder):
    """Return the number of words and a reader of five consecutive ones."""
    if folder is not None:
        dataset.common.DATA_HOME = folder
        numbers = dataset.imikolov.build_dict()
        return numbers, dataset.imikolov.train(numbers, WORDS)
    numbers = {word: number for number, word in enumerate(sorted(set(" ".join(KINDS).split())))}
    numbers |= {"<s>": len(numbers), "<e>": len(numbers) + 1}

    def in_a_row():
        for sentence in sentences():
            indices = [numbers[word] for word in sentence]
            yield from (tuple(indices[i : i + WORDS]) for i in range(len(indices) - WORDS + 1))

    return numbers, in_a_row


def train(steps=STEPS, folder=None, save=None):
    """Train on `steps` batches, print which words are similar, and return the losses."""
    numbers, rows_of = data_of(folder)
    words = [fluid.data(f"word{place}", [None, 1], "int64") for place in range(WORDS)]
    vectors = [
        fluid.layers.embedding(word, [len(numbers), SIZE], is_sparse=True, param_attr="vectors")
        for word in words[:-1]
    ]
    hidden = fluid.layers.fc(fluid.layers.concat(vectors, axis=1), size=64, act="sigmoid")
    guess = fluid.layers.fc(hidden, size=len(numbers), act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, words[-1]))
    fluid.optimizer.Adagrad(learning_rate=0.1).minimize(loss)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(words, place)
    batches = batch(reader.shuffle(rows_of, buf_size=2000), batch_size=50)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (value,) = executor.run(feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(value))
            if len(losses) % 50 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    tell_neighbours(np.array(fluid.global_scope().find_var("vectors").get_tensor()), numbers)
    if save:
        fluid.io.save_inference_model(save, [word.name for word in words[:-1]], [guess], executor)
        print(f"saved: fluid infer {save} --describe")
    return losses


def tell_neighbours(vectors, numbers, some=5):
    """Print the nearest neighbours of a few words by their vectors."""
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    words = list(numbers)
    for number in range(min(some, len(words))):
        alike = np.argsort(-vectors @ vectors[number])[1:3]
        print(f"near {words[number]}: {', '.join(str(words[other]) for other in alike)}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above imikolov")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, save=given.save)
