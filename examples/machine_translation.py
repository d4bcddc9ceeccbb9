"""Machine translation: an encoder, a decoder with attention, and a beam search.

    python examples/machine_translation.py [--steps N] [--data FOLDER] [--save FOLDER]

A bidirectional GRU reads a sentence; a second one writes the translation, word by word, with
attention over the input (Bahdanau et al., 2015). Without `--data` the language is synthetic: each
word has another name, and their order is reversed; with it English becomes German by the captions
of `wmt16` in that folder.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

layers = fluid.layers

STEPS = 150
FALLS = 20  # Required reduction of the loss.
WIDTH, BEAMS, LONGEST = 64, 3, 20
START, END = 0, 1
ASKED = ["words", "first", "score"]  # Inputs of the translation.
WORDS = "<s> <e> <unk> one two three four five six seven eight".split()
NAMES = "<s> <e> <unk> eins zwei drei vier fuenf sechs sieben acht".split()


# The network


def encoder(words, size):
    """The encoded words, read in both directions, and the decoder's initial state."""
    vectors = layers.embedding(words, [size, WIDTH])
    forwards = layers.dynamic_gru(layers.fc(vectors, WIDTH * 3), WIDTH)
    backwards = layers.dynamic_gru(layers.fc(vectors, WIDTH * 3), WIDTH, is_reverse=True)
    encoded = layers.concat([forwards, backwards], axis=1)
    start = layers.fc(layers.sequence_first_step(backwards), WIDTH, act="tanh")
    return start, encoded, layers.fc(encoded, WIDTH, bias_attr=False)


def attention(state, encoded, projected):
    """The attention-weighted mean of the encoded words."""
    wanted = layers.sequence_expand(layers.fc(state, WIDTH, bias_attr=False), projected)
    suits = layers.fc(layers.tanh(layers.elementwise_add(projected, wanted)), 1, bias_attr=False)
    weights = layers.reshape(layers.sequence_softmax(suits), [-1])
    return layers.sequence_pool(layers.elementwise_mul(encoded, weights, axis=0), "sum")


def decoder_step(vector, state, encoded, projected, size):
    """The next state of the decoder, and the probability of each word."""
    seen = layers.fc([vector, attention(state, encoded, projected)], WIDTH * 3)
    state, _, _ = layers.gru_unit(seen, state, WIDTH * 3)
    return state, layers.fc(state, size, act="softmax")


def training_loss(sizes):
    """The training inputs, and the loss of the next words."""
    names = ("words", "translation", "next word")
    inputs = [fluid.data(name, [None, 1], "int64", lod_level=1) for name in names]
    start, encoded, projected = encoder(inputs[0], sizes[0])
    vectors = layers.embedding(inputs[1], [sizes[1], WIDTH])
    rnn = layers.DynamicRNN()
    with rnn.block():
        vector = rnn.step_input(vectors)
        read = rnn.static_input(encoded), rnn.static_input(projected)
        state = rnn.memory(init=start, need_reorder=True)
        new_state, guess = decoder_step(vector, state, *read, sizes[1])
        rnn.update_memory(state, new_state)
        rnn.output(guess)
    return inputs, layers.mean(layers.cross_entropy(rnn(), inputs[2]))


def beam_search(sizes):
    """The inputs to translate, and the best translations: a loop over beams."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    first = fluid.data("first", [None, 1], "int64", lod_level=2)
    score = fluid.data("score", [None, 1], "float32", lod_level=2)
    step = layers.fill_constant([1], "int64", 0)
    last = layers.fill_constant([1], "int64", LONGEST)
    carried = [layers.array_write(state_vector, step) for state_vector in encoder(words, sizes[0])]
    chosen, scores = layers.array_write(first, step), layers.array_write(score, step)
    going = layers.less_than(step, last)
    loop = layers.While(going)
    with loop.block():
        before, so_far = layers.array_read(chosen, step), layers.array_read(scores, step)
        # A beam that was extended twice has its state and encoded input twice.
        old = [layers.sequence_expand(layers.array_read(array, step), so_far) for array in carried]
        vector = layers.embedding(before, [sizes[1], WIDTH])
        state, guess = decoder_step(vector, *old, sizes[1])
        likely, which = layers.topk(layers.lod_reset(guess, y=so_far), BEAMS)
        total = layers.elementwise_add(layers.log(likely), layers.reshape(so_far, [-1]), axis=0)
        best, sums = layers.beam_search(before, so_far, which, total, BEAMS, END)
        layers.increment(step)
        layers.array_write(best, step, chosen)
        layers.array_write(sums, step, scores)
        for value, array in zip([state, *old[1:]], carried, strict=True):
            layers.array_write(value, step, array)
        more = layers.logical_not(layers.is_empty(best))
        layers.logical_and(layers.less_than(step, last), more, out=going)
    return layers.beam_search_decode(chosen, scores, BEAMS, END)


# The languages


def pairs():
    """Generate sentences: their words, the translation after a start token, and before an end
    token.
    """
    draw = np.random.default_rng(0)
    while True:
        words = draw.integers(3, len(WORDS), draw.integers(2, 7)).tolist()
        other = words[::-1]
        yield [START, *words, END], [START, *other], [*other, END]


def data_of(folder, most=5000):
    """Return the words of both languages, a training reader and one to translate."""
    if folder is None:
        return WORDS, NAMES, lambda: islice(pairs(), 2000), lambda: islice(pairs(), 2000, 2005)
    dataset.common.DATA_HOME = folder
    wmt16 = dataset.wmt16
    english, german = (list(wmt16.get_dict(lang, most)) for lang in ("en", "de"))
    return english, german, wmt16.train(most, most), lambda: islice(wmt16.test(most, most)(), 5)


def translate(executor, program, found, sentences, place):
    """Return the word ids of the best translation of each sentence."""
    words, rows = program.global_block().var("words"), [[sentence] for sentence in sentences]
    feed = fluid.DataFeeder([words], place).feed(rows)
    once = [[1] * len(rows)] * 2
    feed["first"] = fluid.create_lod_tensor(np.full((len(rows), 1), START), once, place)
    feed["score"] = fluid.create_lod_tensor(np.zeros((len(rows), 1), np.float32), once, place)
    (best,) = executor.run(program, feed=feed, fetch_list=[found], return_numpy=False)
    (firsts, ends), numbers = best.lod(), np.array(best).ravel()
    return [numbers[ends[first] : ends[first + 1]].tolist() for first in firsts[:-1]]


def train(steps=STEPS, folder=None, save=None):
    """Train on `steps` batches, translate five other sentences, and return the losses."""
    words, names, learnt, others = data_of(folder)
    sizes = len(words), len(names)
    with fluid.unique_name.guard():
        inputs, loss = training_loss(sizes)
        fluid.optimizer.Adam(learning_rate=0.005).minimize(loss)
    search_program = fluid.Program()
    with fluid.program_guard(search_program, fluid.Program()), fluid.unique_name.guard():
        translations, _ = beam_search(sizes)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder(inputs, place)
    batches = batch(reader.shuffle(learnt, buf_size=10000), batch_size=32)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (value,) = executor.run(feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(value))
            if len(losses) % 25 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    some = [row[0] for row in others()]
    translated = translate(executor, search_program, translations, some, place)
    for sentence, numbers in zip(some, translated, strict=True):
        print(" ".join(words[number] for number in sentence[1:-1]), end=" → ")
        print(" ".join(names[number] for number in numbers if number not in (START, END)))
    if save:
        fluid.io.save_inference_model(save, ASKED, [translations], executor, search_program)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above wmt16")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, save=given.save)
