"""Film recommendation: the similarity of user and film vectors predicts a rating.

    python examples/recommender_system.py [--steps N] [--data FOLDER] [--save FOLDER]

Without `--data` users and films are synthetic; with it they are those of `movielens` in that
folder.
"""

from argparse import ArgumentParser
from contextlib import suppress
from itertools import count, islice

import numpy as np

import fluid
from fluid.compat.paddle import batch, dataset, reader

STEPS = 300
FALLS = 8  # Required reduction of the loss.
ONE = ["person", "sex", "age", "job", "film"]
SEVERAL = ["genres", "title"]


def ratings():
    """Generate ratings, -3 to 5: jobs prefer genres, ages prefer words of titles."""
    draw = np.random.default_rng(0)
    likes, age_likes = draw.uniform(-2, 3, (4, 6)), draw.uniform(-1, 2, (3, 20))
    people = [[i, *(int(draw.integers(most)) for most in (2, 3, 4))] for i in range(40)]
    films = [
        [i, draw.choice(6, 2, replace=False).tolist(), draw.integers(0, 20, 3).tolist()]
        for i in range(30)
    ]
    for _ in range(2000):
        person, film = people[draw.integers(40)], films[draw.integers(30)]
        rating = likes[person[3], film[1]].mean() + age_likes[person[2], film[2]].mean()
        yield [*person, *film, [rating]]


def data_of(folder):
    """Return a reader, and the number of values of each id, in the order of a sample."""
    if folder is None:
        return ratings, [40, 2, 3, 4, 30, 6, 20]
    dataset.common.DATA_HOME = folder
    films = dataset.movielens
    sizes = [films.max_user_id() + 1, 2, len(films.age_table), films.max_job_id() + 1]
    sizes += [films.max_movie_id() + 1, len(films.movie_categories())]
    return films.train(), [*sizes, len(films.get_movie_title_dict())]


def person_vector(inputs, sizes):
    """The vector of a user, 64 numbers between -1 and 1."""
    features = [
        fluid.layers.fc(fluid.layers.embedding(inputs[name], [sizes[name], 16]), size=16)
        for name in ("person", "sex", "age", "job")
    ]
    return fluid.layers.fc(features, size=64, act="tanh")


def film_vector(inputs, sizes):
    """The vector of a film, its genres and the words of its title, 64 numbers between -1 and 1."""
    film = fluid.layers.fc(fluid.layers.embedding(inputs["film"], [sizes["film"], 16]), size=16)
    genres = fluid.layers.embedding(inputs["genres"], [sizes["genres"], 16])
    title = fluid.layers.embedding(inputs["title"], [sizes["title"], 16])
    words = fluid.nets.sequence_conv_pool(title, 16, filter_size=3, act="tanh", pool_type="sum")
    return fluid.layers.fc([film, fluid.layers.sequence_pool(genres, "sum"), words], 64, act="tanh")


def train(steps=STEPS, folder=None, save=None):
    """Train on `steps` batches, rate a few films, and return the losses."""
    rows_of, counts = data_of(folder)
    inputs = {name: fluid.data(name, [None, 1], "int64") for name in ONE}
    inputs |= {name: fluid.data(name, [None, 1], "int64", lod_level=1) for name in SEVERAL}
    rating = fluid.data("rating", [None, 1], "float32")
    sizes = dict(zip(inputs, counts, strict=True))
    alike = fluid.layers.cos_sim(person_vector(inputs, sizes), film_vector(inputs, sizes))
    guess = fluid.layers.scale(alike, scale=5.0)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, rating))
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.005).minimize(loss)

    place = fluid.CPUPlace()
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeder = fluid.DataFeeder([*inputs.values(), rating], place)
    batches = batch(reader.shuffle(rows_of, buf_size=2000), batch_size=64)

    losses = []
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        for rows in islice((rows for _ in count() for rows in batches()), steps):
            (value,) = executor.run(feed=feeder.feed(rows), fetch_list=[loss])
            losses.append(float(value))
            if len(losses) % 50 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    some = list(islice(rows_of(), 5))
    (guesses,) = executor.run(test_program, feed=feeder.feed(some), fetch_list=[guess])
    for row, predicted in zip(some, guesses.ravel(), strict=True):
        print(f"person {row[0]} rates film {row[4]}: {row[-1][0]:5.2f}, predicted {predicted:5.2f}")
    if save:
        fluid.io.save_inference_model(save, [*inputs], [guess], executor, test_program)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--data", metavar="FOLDER", help="the folder above movielens")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, given.data, save=given.save)
