"""`fluid demo`: train a digit classifier and show every stage of the compiler.

It is written as any fluid program: layers and an optimizer record a program, an executor
runs it, `fluid.io` saves it. The rest shows what the compiler does in between.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from shutil import which

import numpy as np

import runtime
from compiler.debugging.explanation import Study, study
from compiler.ir.types import Array
from compiler.options import Options
from compiler.report.table import count, table
from compiler.report.tables import memory_table, pass_table
from compiler.support.dataclass import dataclass
from compiler.support.text_files import write_text
from fluid import io, layers, optimizer, unique_name
from fluid.cli.model import SavedModel, load_model
from fluid.demo.digits import SIDE, TRAINED, Digits, batches, gallery, load_digits
from fluid.demo.folder import replacing
from fluid.demo.machine_code import fastest, machine_code
from fluid.demo.progress import Progress
from fluid.executor import Executor, scope_guard
from fluid.framework import Program, Variable, recording_guard
from runtime.device import CPUPlace
from runtime.tensors.scope import Scope

EPOCHS, SEED, BATCH = 15, 0, 50
STEPS = TRAINED // BATCH
RATE, MOMENTUM = 0.05, 0.9

FUSION = frozenset({"fuse_batch_norm", "split_batch_norm"})
LIMIT = 1e-4
"""Maximum change of a prediction by folding batch norms."""


HEADING = """\
A network learns handwritten digits, through every stage of the compiler:
fluid calls ─► Program ─► Graph ─► passes ─► Plan ─► Module ─► Executable ─► numbers"""

AGAIN = """\
It is saved, and loaded again. Executor.run went all the way down in one call; now step by step."""


@dataclass(frozen=True)
class Network:
    """The programs of the demo and the variables that are fetched."""

    main: Program
    startup: Program
    test: Program
    prediction: Variable
    loss: Variable
    accuracy: Variable


def demo(given: argparse.Namespace) -> int:
    """Run the demo; exit code 1 if folding batch norms changed a prediction by
    more than `LIMIT`.
    """
    with scope_guard(Scope()), replacing(given.out) as folder:
        difference = _story(given, folder)
    print(_where(given.out))
    return int(difference > LIMIT)


def _story(given: argparse.Namespace, folder: Path) -> float:
    """Run every stage; returns the largest change of a prediction by folding."""
    training, held_out = load_digits()
    network = record(given.epochs, given.seed)
    print(f"{HEADING}\n\n{_recorded(network)}")
    executor = Executor(CPUPlace())
    executor.run(network.startup)
    print(train(executor, network, training, given.epochs, given.seed))
    taught = _predict(executor, network, held_out)
    print(_marked(taught, held_out))
    model = save(executor, network, held_out, folder)
    step = study_training(network, folder)
    unfused, fused = study_inference(model, len(held_out), folder)
    print(_compiled(step, unfused, fused))
    difference, text = compare(unfused, fused, held_out, taught)
    print(text)
    _write_reports(step, fused, folder)
    print(compiled_to_machine_code(model, fused, held_out, folder))
    return difference


# ---- fluid calls ─► Program ---------------------------------------------------------------------


def record(epochs: int, seed: int) -> Network:
    """Record the network in new programs: initial weights depend on `seed` only."""
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = seed + 1
    with recording_guard(main, startup), unique_name.guard():
        image = layers.data("image", [1, SIDE, SIDE])
        label = layers.data("label", [1], dtype="int64")
        prediction = lenet(image)
        loss = layers.mean(layers.cross_entropy(prediction, label))
        accuracy = layers.accuracy(prediction, label)
        test = main.clone(for_test=True)
        rate = layers.polynomial_decay(RATE, epochs * STEPS, 0.0)
        optimizer.Momentum(rate, MOMENTUM).minimize(loss)
    return Network(main, startup, test, prediction, loss, accuracy)


def lenet(image: Variable) -> Variable:
    """Probabilities of the ten digits: two convolutions with batch norms, and a fully connected
    layer.
    """
    hidden = image
    for kind in ("max", "avg"):
        hidden = layers.conv2d(hidden, num_filters=32, filter_size=3, padding=1)
        hidden = layers.batch_norm(hidden, act="relu")
        hidden = layers.pool2d(hidden, pool_size=2, pool_stride=2, pool_type=kind)
    return layers.fc(hidden, size=10, act="softmax")


def _recorded(network: Network) -> str:
    ops = [len(program.global_block().ops) for program in (network.main, network.test)]
    numbers = sum(int(np.prod(var.shape)) for var in network.main.all_parameters())
    text = f"{ops[0]} ops to train and {ops[1]} to predict, {numbers:,} parameters"
    return _line("fluid calls ─► Program", text)


def _line(stage: str, text: str) -> str:
    """Format the result of a stage as one line."""
    return f"{stage:<25}{text}".rstrip()


# ---- Program ─► numbers -------------------------------------------------------------------------


def train(executor: Executor, network: Network, digits: Digits, epochs: int, seed: int) -> str:
    """Run the main program over all digits `epochs` times; returns a summary line."""
    generator = np.random.default_rng(seed)
    progress = Progress(epochs, STEPS, BATCH)
    fetched = [network.loss, network.accuracy]
    with progress:
        for _ in range(epochs):
            for batch in batches(digits, BATCH, generator):
                feed = {"image": batch.pixels, "label": batch.labels}
                loss, accuracy = executor.run(network.main, feed=feed, fetch_list=fetched)
                progress.step(loss.item(), accuracy.item())
    return _line("Program ─► numbers", progress.summary())


def _predict(executor: Executor, network: Network, digits: Digits) -> Array:
    feed = {"image": digits.pixels, "label": digits.labels}
    return executor.run(network.test, feed=feed, fetch_list=[network.prediction])[0]


def accuracy(predictions: Array, digits: Digits) -> float:
    """The fraction of digits that are classified correctly."""
    hits: Array = predictions.argmax(axis=1) == digits.labels[:, 0]
    return float(hits.mean())


def _marked(predictions: Array, digits: Digits) -> str:
    share = f"held-out accuracy {accuracy(predictions, digits):.1%}"
    text = f"{share}, on {count(len(digits), 'digit')} it has never seen"
    return f"{_line('', text)}\n\n{gallery(digits, predictions)}\n"


# ---- a saved model ------------------------------------------------------------------------------


def save(executor: Executor, network: Network, digits: Digits, folder: Path) -> SavedModel:
    """Save the network for inference with sample digits; returns the model, loaded into a new
    scope.
    """
    place = folder / "model"
    io.save_inference_model(str(place), ["image"], [network.prediction], executor, network.test)
    np.save(folder / "digits.npy", digits.pixels)
    return load_model(place)


def study_training(network: Network, folder: Path) -> Study:
    """Compile the training step as `Executor.run` does, recording each pass."""
    fetch = [network.loss.name, network.accuracy.name]
    return study(
        "Training step", network.main, ["image", "label"], fetch, {"N": BATCH},
        dump=folder / "train",
    )  # fmt: skip


def study_inference(model: SavedModel, size: int, folder: Path) -> tuple[Study, Study]:
    """Compile the saved model twice: with its batch norms, and with them folded into weights."""
    options = Options.from_env()
    unfused = replace(options, disable=options.disable | FUSION)
    folded = replace(options, disable=options.disable - FUSION)
    return (
        _study_model("Saved model, batch norms kept", model, size, unfused, None),
        _study_model("Saved model", model, size, folded, folder / "infer"),
    )


def _study_model(
    title: str, model: SavedModel, size: int, options: Options, dump: Path | None
) -> Study:
    return study(
        title, model.program, ["image"], model.fetch_names, {"N": size},
        params=dict(model.params), options=options, dump=dump,
    )  # fmt: skip


def compare(unfused: Study, fused: Study, digits: Digits, taught: Array) -> tuple[float, str]:
    """The largest change of a prediction by folding, and a report of it.

    `taught` are the predictions before the model was saved.
    """
    before, slow = _timed(unfused, digits)
    after, fast = _timed(fused, digits)
    saving, folding = (float(np.abs(before - other).max()) for other in (taught, after))
    times = f"{count(len(digits), 'digit')} in {slow:.1f} ms, {fast:.1f} ms with batch norms folded"
    limit = f"(limit {LIMIT:g})" if folding <= LIMIT else f"(MORE THAN {LIMIT:g})"
    return folding, "\n".join([
        _line("Executable", times),
        _line("numbers", f"probabilities moved by at most {saving:.2g} by saving and loading,"),
        _line("", f"by at most {folding:.2g} by folding batch norms {limit};"),
        _line("", f"held-out accuracy {accuracy(after, digits):.1%} still"),
    ])  # fmt: skip


def _timed(seen: Study, digits: Digits) -> tuple[Array, float]:
    """The predictions of a compiled model, and the minimum time of a few runs in milliseconds."""
    executable = runtime.load(seen.module, CPUPlace(), seen.params)
    feed = {"image": digits.pixels}
    (predictions,) = executable(feed)
    return predictions, fastest(lambda: executable(feed))


def compiled_to_machine_code(
    model: SavedModel, readable: Study, digits: Digits, folder: Path
) -> str:
    """Compile the model for this CPU and report its kernels, beside the NumPy module's run."""
    code = machine_code(model, digits.pixels)
    if code is None:
        return f"\n{_line('Machine code', 'none: this system runs programs in NumPy')}"
    code.save(folder / "machine.html")
    expected, numpy = _timed(readable, digits)
    moved = float(np.abs(code.predictions - expected).max())
    kernels = count(code.kernels, "kernel")
    ratio = numpy / code.milliseconds
    return "\n".join([
        f"\n{_line('Machine code', f'{kernels} for this CPU, ready in {code.seconds:.2f} s:')}\n",
        f"{code.report}\n",
        _line("", f"{count(len(digits), 'digit')} in {code.milliseconds:.2f} ms, {ratio:.0f} times "
                  "as fast as the NumPy module;"),
        _line("", f"probabilities differ by at most {moved:.2g}"),
    ])  # fmt: skip


# ---- what is shown ------------------------------------------------------------------------------


def _compiled(step: Study, unfused: Study, fused: Study) -> str:
    """Report of the passes with missed optimisations and reasons, the memory, and the module."""
    memory = {
        f"training, {BATCH} digits": step.memory,
        f"prediction, {unfused.sizes['N']} digits": unfused.memory,
        "the same, batch norms folded": fused.memory,
    }
    lines = count(len(fused.module.source.splitlines()), "line")
    return "\n\n".join([
        AGAIN,
        _line("Graph ─► passes", "the training step:"),
        pass_table(step.stages, step.sizes),
        _line("", "the saved model, whose batch norms fold into the weights before them:"),
        pass_table(fused.stages, fused.sizes),
        _line("Plan", "temporaries share one arena, no smaller than what is alive at once:"),
        memory_table(memory),
        _line("Module", f"{lines} of NumPy for the saved model, yours to read"),
    ])  # fmt: skip


def _write_reports(step: Study, fused: Study, folder: Path) -> None:
    write_text(folder / "report.html", step.html())
    write_text(folder / "inference.html", fused.html())


def command() -> str:
    """How a shell finds the command `fluid`: by its path if no folder of PATH has it."""
    started = Path(sys.argv[0])
    if started.name != "fluid" or which("fluid") is not None:
        return "fluid"
    here = Path.cwd()
    return str(started.relative_to(here) if started.is_relative_to(here) else started)


def _where(out: Path) -> str:
    fluid = command()
    rows = [
        (f"{out}/report.html", "the training step: passes, memory, module"),
        (f"{out}/inference.html", "the same for the saved model"),
        (f"{out}/machine.html", "its machine code: kernels and their times"),
        (f"{out}/train, {out}/infer", "graphs after each pass, plans, modules"),
        (f"{out}/infer/main.py", "a module: read it, edit it, run it"),
        (f"{fluid} inspect {out}/model", "what is in the saved model"),
        (f"{fluid} infer {out}/model --input {out}/digits.npy", "run it again"),
    ]
    return f"\nWhere to look next\n{table(rows, left=2)}"
