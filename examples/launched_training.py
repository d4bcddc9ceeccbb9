"""Digit recognition on any number of processes, resumed from the last checkpoint after a restart.

    fluid launch --nproc_per_node 2 --max_restarts 3 examples/launched_training.py
        [--epochs N] [--checkpoints FOLDER]

Every process trains on its rows of each batch; the gradients are all-reduced (mode `collective` of
DistributeTranspiler). Process 0 saves parameters and the optimizer's state after every epoch. If a
process fails, `fluid launch` restarts all, maybe fewer or more: a checkpoint does not depend on
their number. All machines must share FOLDER.
"""

import os
from argparse import ArgumentParser
from pathlib import Path

import numpy as np

import fluid

EPOCHS, ROWS = 4, 60
DIGITS = Path(fluid.__file__).parent / "demo" / "data" / "digits.npz"


def recorded():
    """Record two hidden layers over 8×8 pixels in the default programs; return their loss."""
    fluid.default_startup_program().random_seed = 1
    pixels = fluid.data("pixels", [None, 64], "float32")
    digit = fluid.data("digit", [None, 1], "int64")
    hidden = fluid.layers.fc(fluid.layers.fc(pixels, 128, act="relu"), 64, act="relu")
    guess = fluid.layers.fc(hidden, 10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(guess, digit))
    fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return loss


def transpile(rank, endpoints):
    """All-reduce gradients in the default programs, and broadcast the initial values."""
    config = fluid.DistributeTranspilerConfig()
    config.mode, config.collective_mode = "collective", "grad_allreduce"
    fluid.DistributeTranspiler(config).transpile(
        rank, trainers=",".join(endpoints), current_endpoint=endpoints[rank]
    )


def batches(epoch, rank, ranks):
    """The rows of one process of every batch: the same batches for any number of processes."""
    with np.load(DIGITS) as file:
        pixels = file["images"].reshape(-1, 64).astype("float32") / 8 - 1
        digits = file["labels"].astype("int64")[:, None]
    order = np.random.default_rng(epoch).permutation(1500)
    for rows in order.reshape(-1, ROWS):
        mine = np.array_split(rows, ranks)[rank]
        yield {"pixels": pixels[mine], "digit": digits[mine]}


def last_epoch(folder):
    """The number of epochs of the newest checkpoint, 0 if there is none."""
    names = [entry.name for entry in folder.glob("epoch-*") if entry.name[6:].isdecimal()]
    return max((int(name[6:]) for name in names), default=0)


def save(executor, folder, epoch):
    """Save a checkpoint, renamed to its final name when complete."""
    partial, whole = folder / f"partial-{epoch}", folder / f"epoch-{epoch}"
    fluid.io.save_persistables(executor, str(partial), filename="state")
    partial.rename(whole)


def train(epochs, folder, rank=0, endpoints=("alone",)):
    """Train for `epochs` epochs, resuming from the last checkpoint; return the mean loss of each
    new epoch.
    """
    loss, main = recorded(), fluid.default_main_program().clone()
    if len(endpoints) > 1:
        transpile(rank, endpoints)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    done, losses = last_epoch(folder), []
    if done:
        state = str(folder / f"epoch-{done}")
        fluid.io.load_persistables(executor, state, main_program=main, filename="state")
    for epoch in range(done, epochs):
        feeds = batches(epoch, rank, len(endpoints))
        values = [executor.run(feed=feed, fetch_list=[loss])[0].item() for feed in feeds]
        losses.append(float(np.mean(values)))
        print(
            f"process {rank} of {len(endpoints)}, epoch {epoch}: loss {losses[-1]:.6f}", flush=True
        )
        if rank == 0:
            save(executor, folder, epoch + 1)
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    given = parser.parse_args()
    given.checkpoints.mkdir(parents=True, exist_ok=True)
    train(
        given.epochs,
        given.checkpoints,
        int(os.environ.get("PADDLE_TRAINER_ID", "0")),
        os.environ.get("PADDLE_TRAINER_ENDPOINTS", "alone").split(","),
    )
