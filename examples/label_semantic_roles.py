"""Semantic role labelling: stacked LSTMs in alternating directions, and a CRF.

    python examples/label_semantic_roles.py [--depth N] [--steps N] [--data FOLDER] [--save FOLDER]

Each word of a sentence is labelled with its role for one verb. Without `--data` the sentences are
synthetic, active and passive; with it they are those of `conll05st` in that folder.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

STEPS, DEPTH, WIDTH = 60, 4, 64
FALLS = 10  # Required reduction of the loss.
WORDS = ["word", "left2", "left1", "verb0", "right1", "right2"]
INPUTS = [*WORDS, "predicate", "near", "label"]
LABELS = ["B-A0", "I-A0", "B-A1", "I-A1", "B-V", "I-V", "O"]
THINGS, VERBS = "cat dog girl poet", "saw heard fed"
VOCABULARY = [*"<unk> bos eos the a was by today".split(), *THINGS.split(), *VERBS.split()]


def sentences():
    """Generate sentences: the words, the verb and the label of each word."""
    draw = np.random.default_rng(0)
    one, roles = ["the", "a"], {"A0": ["B-A0", "I-A0"], "A1": ["B-A1", "I-A1"]}
    for _ in range(400):
        verb = str(draw.choice(VERBS.split()))
        who, whom = (
            [str(draw.choice(choices)) for choices in (one, THINGS.split())] for _ in range(2)
        )
        if draw.random() < 0.5:
            roles_of_sentence = [*who, verb, *whom], [*roles["A0"], "B-V", *roles["A1"]]
        else:
            words = [*whom, "was", verb, "by", *who]
            roles_of_sentence = words, [*roles["A1"], "O", "B-V", "O", *roles["A0"]]
        late = int(draw.integers(2))
        yield roles_of_sentence[0] + ["today"] * late, verb, roles_of_sentence[1] + ["O"] * late


def data_of(folder):
    """Return the numbers of words, verbs and labels, and a reader of nine lists per sentence."""
    if folder is not None:
        dataset.common.DATA_HOME = folder
        return (*dataset.conll05.get_dict(), dataset.conll05.test())
    names = VOCABULARY, VERBS.split(), LABELS
    numbers = [{name: number for number, name in enumerate(vocabulary)} for vocabulary in names]
    return (*numbers, dataset.conll05.reader_creator(sentences, *numbers))


def scores(inputs, sizes, depth):
    """The score of each label for each word, one row per word."""
    shared = fluid.ParamAttr(name="word vectors")
    vectors = [fluid.layers.embedding(inputs[n], [sizes[0], 32], param_attr=shared) for n in WORDS]
    vectors.append(fluid.layers.embedding(inputs["predicate"], [sizes[1], 32]))
    vectors.append(fluid.layers.embedding(inputs["near"], [2, 8]))
    mixed = fluid.layers.fc(vectors, size=WIDTH, act="tanh")
    for level in range(depth):
        states, _ = fluid.layers.dynamic_lstm(mixed, size=WIDTH, is_reverse=level % 2 == 1)
        mixed = fluid.layers.fc([mixed, states], size=WIDTH, act="tanh")
    return fluid.layers.fc([mixed, states], size=sizes[2])


def train(steps=STEPS, folder=None, depth=DEPTH, save=None):
    """Train on `steps` batches, label a few sentences, and return the losses."""
    *numbers, rows_of = data_of(folder)
    inputs = {name: fluid.data(name, [None, 1], "int64", lod_level=1) for name in INPUTS}
    emission = scores(inputs, list(map(len, numbers)), depth)
    field = fluid.ParamAttr(name="transitions", learning_rate=2.0)
    cost = fluid.layers.linear_chain_crf(emission, inputs["label"], param_attr=field)
    path = fluid.layers.crf_decoding(emission, param_attr=field)
    loss = fluid.layers.mean(cost)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.005).minimize(loss)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(list(inputs.values()), place)
    batches = batch(reader.shuffle(rows_of, buf_size=8192), batch_size=20)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (value,) = executor.run(feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(value))
            if len(losses) % 10 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    words, _, labels = (
        {number: name for name, number in vocabulary.items()} for vocabulary in numbers
    )
    some = list(islice(rows_of(), 3))
    feed = feeder.feed(some)
    (labelled,) = executor.run(test_program, feed=feed, fetch_list=[path], return_numpy=False)
    of_all = iter(np.array(labelled).ravel().tolist())
    for row in some:
        print(" ".join(f"{words.get(word, '?')}/{labels[next(of_all)]}" for word in row[0]))
    if save:
        fluid.io.save_inference_model(save, INPUTS[:-1], [path], executor, test_program)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=DEPTH, help="number of stacked LSTMs")
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above conll05st")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, given.depth, save=given.save)
