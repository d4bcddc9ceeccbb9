"""Optimising a trained network for inference: batch norms are folded into the preceding layers.

    python examples/inference_transpiler.py [--steps N] [--save FOLDER]

A small network with three batch norms is trained on the 1,797 digits included in the package. Then
`InferenceTranspiler` rewrites a clone of its test program, since it works in place, and adds new
parameters next to the old ones. Both programs compute the same; one has less to do.
"""

from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import numpy as np

import fluid

STEPS = 60
FALLS = 10  # Required reduction of the loss.
DIGITS = Path(fluid.__file__).parent / "demo" / "data" / "digits.npz"


def normed(found, filters, size):
    """Apply a convolution without a bias and batch normalisation."""
    found = fluid.layers.conv2d(found, filters, size, padding=size // 2, bias_attr=False)
    return fluid.layers.batch_norm(found, act="relu")


def network(picture):
    """Two convolutions, a hidden layer, each with a norm, and the probability of each digit."""
    features = normed(normed(picture, 16, size=3), 16, size=3)
    hidden = fluid.layers.fc(fluid.layers.pool2d(features, 2, "max", 2), size=32)
    return fluid.layers.fc(fluid.layers.batch_norm(hidden, act="relu"), size=10, act="softmax")


def answers(executor, program, guess, images, times=20):
    """The predictions of a program for images, without its loss, and the milliseconds."""
    spent = []
    for _ in range(times):
        start = perf_counter()
        (predictions,) = executor.run(program, {"picture": images}, [guess], use_prune=True)
        spent.append(perf_counter() - start)
    return predictions, min(spent) * 1000


def train(steps=STEPS, save=None):
    """Train on `steps` batches, rewrite the test program, compare, and return the losses."""
    picture = fluid.data("picture", [None, 1, 8, 8], "float32")
    digit = fluid.data("digit", [None, 1], "int64")
    guess = network(picture)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, digit))
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)

    place, draw, losses = fluid.CPUPlace(), np.random.default_rng(0), []
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    with np.load(DIGITS) as file:
        images, digits = file["images"], file["labels"]
    images = images.reshape(-1, 1, 8, 8).astype(np.float32) / 8 - 1
    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        while len(losses) < steps:
            some = draw.integers(0, 1500, 64)
            feed = {"picture": images[some], "digit": digits[some].reshape(-1, 1).astype("int64")}
            losses.append(executor.run(feed=feed, fetch_list=[loss])[0].item())
            if len(losses) % 20 == 0:
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}")

    rewritten = test_program.clone(for_test=True)
    fluid.InferenceTranspiler().transpile(rewritten, place)
    predictions = {}
    for name, program in {"as recorded": test_program, "rewritten": rewritten}.items():
        kinds = [op.type for op in program.global_block().ops]
        predictions[name], spent = answers(executor, program, guess, images[1500:])
        norms = kinds.count("batch_norm")
        print(f"{name:11s}  {len(kinds)} ops, {norms} batch norms, {spent:.2f} ms")
    moved = np.abs(predictions["rewritten"] - predictions["as recorded"]).max()
    print(f"outputs differ by at most {moved:.0e}")
    if save:
        fluid.io.save_inference_model(save, ["picture"], [guess], executor, rewritten)
        print(f"saved: fluid infer {save} --describe")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    parser.add_argument("--save", metavar="FOLDER", help="where to put the model for `fluid infer`")
    given = parser.parse_args()
    train(given.steps, save=given.save)
