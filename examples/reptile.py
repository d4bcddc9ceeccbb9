"""Meta-learning: Reptile on handwritten digits, five classes with five images each.

    python examples/reptile.py [--rounds N] [--devices K]

A small convolutional network is trained on one task after the other: a few steps on five classes,
then its weights move a little towards the final ones (Nichol et al., 2018, "On first-order
meta-learning algorithms"). The result is an initialisation for which five images per class are
enough. It is tested on unseen classes: other digits, in four rotations each, which count as
separate classes. With `--devices 2` every step is data-parallel over two processes.
"""

from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

import fluid
from fleet.openks.few_shot.datasets import Open_KS_Read_Character
from fleet.openks.few_shot.episodes import sample_episode
from fluid.demo.digits import load_digits

WAYS, SHOTS, QUERIES = 5, 5, 5
ROUNDS, INNER_STEPS, TEST_STEPS, TASKS = 200, 5, 5, 20
TRAINED_ON = 6  # Digits 0 to 5 in four rotations; the others are the test set.


def folders(at):
    """Write the digits as folders of images: ALPHABET/characterNN/N.png."""
    digits, _ = load_digits()
    for label in range(10):
        folder = Path(at, "Digits", f"character{label:02}")
        folder.mkdir(parents=True)
        for number, pixels in enumerate(digits.pixels[digits.labels[:, 0] == label][:60]):
            grey = (pixels[0] * 255).astype(np.uint8)
            Image.fromarray(grey).save(folder / f"{number:03}.png")


def classes(at):
    """Return the training and the test classes, each in four rotations."""
    characters = Open_KS_Read_Character.read_dataset(at)
    parts = characters[:TRAINED_ON], characters[TRAINED_ON:]
    return [list(Open_KS_Read_Character.augment_dataset(part)) for part in parts]


def recorded():
    """Record the network: the training, test and startup programs."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup):
        image = fluid.data("image", [None, 1, 28, 28], "float32")
        label = fluid.data("label", [None, 1], "int64")
        hidden = image
        for _ in range(2):
            hidden = fluid.layers.conv2d(hidden, 16, 3, stride=2, padding=1, act="relu")
        scores = fluid.layers.fc(hidden, WAYS, act="softmax")
        accuracy = fluid.layers.accuracy(scores, label)
        test = main.clone(for_test=True)
        loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, label))
        fluid.optimizer.SGD(learning_rate=0.2).minimize(loss)
    return main, startup, test, loss, accuracy


class Learner:
    """The network, its weights, and training on one task."""

    def __init__(self, devices=1):
        self.program, startup, self.test, self.loss, self.accuracy = recorded()
        self.weights = [parameter.name for parameter in self.program.all_parameters()]
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup)
        self.step = self.program
        if devices > 1:
            self.step = fluid.CompiledProgram(self.program).with_data_parallel(
                loss_name=self.loss.name, places=fluid.cpu_places(devices)
            )

    def read(self):
        """Copy the weights."""
        scope = fluid.global_scope()
        return [np.array(scope.find_var(name).get_tensor()) for name in self.weights]

    def write(self, values):
        """Set the weights."""
        scope = fluid.global_scope()
        for name, value in zip(self.weights, values, strict=True):
            scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())

    def train(self, task, steps):
        """Take some steps on the support set of a task."""
        feed = {"image": task.support_images[:, np.newaxis], "label": task.support_labels}
        for _ in range(steps):
            self.executor.run(self.step, feed=feed)

    def tested(self, task):
        """Return the accuracy on the query set."""
        feed = {"image": task.query_images[:, np.newaxis], "label": task.query_labels}
        return self.executor.run(self.test, feed=feed, fetch_list=[self.accuracy])[0].item()


def accuracy(learner, unseen, draw, tasks=TASKS):
    """Train on tasks of unseen classes from the present weights; return the query accuracy."""
    start, accuracies = learner.read(), []
    for _ in range(tasks):
        task = sample_episode(unseen, WAYS, SHOTS, QUERIES, draw)
        learner.train(task, TEST_STEPS)
        accuracies.append(learner.tested(task))
        learner.write(start)
    return float(np.mean(accuracies))


def learn(rounds=ROUNDS, devices=1, folder=None):
    """Meta-train; return the accuracy on unseen classes before and after."""
    with TemporaryDirectory() as at:
        folders(folder or at)
        seen, unseen = classes(folder or at)
        learner, draw = Learner(devices), np.random.default_rng(0)
        before = accuracy(learner, unseen, np.random.default_rng(1))
        for number in range(rounds):
            start = learner.read()
            learner.train(sample_episode(seen, WAYS, SHOTS, 1, draw), INNER_STEPS)
            pace = 1 - number / rounds
            moved = [a + pace * (b - a) for a, b in zip(start, learner.read(), strict=True)]
            learner.write(moved)
            if (number + 1) % 50 == 0:
                print(f"round {number + 1:4d} of {rounds}", flush=True)
        return before, accuracy(learner, unseen, np.random.default_rng(1))


def main():
    """Parse the command line and train."""
    command = ArgumentParser(description=__doc__.partition("\n")[0])
    command.add_argument(
        "--rounds", type=int, default=ROUNDS, help="tasks to train on (%(default)s)"
    )
    command.add_argument("--devices", type=int, default=1, help="processes (%(default)s)")
    options = command.parse_args()
    before, after = learn(options.rounds, options.devices)
    print(f"unseen classes, {WAYS}-way {SHOTS}-shot: {before:.1%} from random weights,")
    print(f"{after:.1%} from those that Reptile found; by chance {1 / WAYS:.0%}")


if __name__ == "__main__":
    main()
