"""Data-parallel steps on two CPU devices, vs. torch's DistributedDataParallel on Gloo.

    python bench/distributed.py --json bench/results/distributed-2core.jsonl
    python bench/distributed.py --model        # beyond one machine, from bytes and bandwidth

Every rank has one thread. The implementations alternate, on the same batches; a time is the median
of rounds, a ratio the median of the rounds' ratios. `cpu` is the CPU time of a rank in
milliseconds: more reliable on a busy machine; here both ranks are one process. Batch norms keep
separate statistics on each rank, and DistributedDataParallel does not broadcast its buffers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import fluid  # noqa: E402
from bench.support.lines import append  # noqa: E402
from bench.support.scaling import Network, exposed, fitted  # noqa: E402
from bench.support.table import Row, goal, table  # noqa: E402
from bench.workers.peers import started  # noqa: E402
from compiler.passes.distribute.buckets import cut  # noqa: E402
from tests.support.nets import wide  # noqa: E402

WORKERS = ROOT / "bench" / "workers"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PAIRS, STEPS, RANKS = 12, 5, 2
EMPTY_STEPS = 200

COLUMNS = {"model": "", "batch": "d", "one": ".2f", "two": ".2f", "torch one": ".2f", "DDP": ".2f"}
COLUMNS |= {"two ÷ DDP": ".2f", "cpu ÷ DDP's": ".2f", "one ÷ two": ".2f"}
COLUMNS |= {"exposed ÷ step": ".2f", "overlap ÷ off": ".2f", "buckets ÷ off": ".2f", "load": ".1f"}
START_COLUMNS = {"what": "", "median": ".3f", "least": ".3f", "unit": "", "load": ".1f"}

SIZES = (4, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
"""Bytes of the timed all-reduces."""

NETWORKS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9}
MESSAGE = 5e-5
"""Latency of a message between machines in seconds: TCP in one data centre."""

MACHINES = (2, 4, 8, 16)
Ask = Callable[[], dict[str, float]]


def load() -> float:
    """The one-minute load average."""
    return os.getloadavg()[0]


def measure(names: Sequence[str], pairs: int) -> Iterator[Row]:
    """A row for each model."""
    ours, torch = (
        [sys.executable, str(WORKERS / f"{name}_devices.py")] for name in ("fluid", "torch")
    )
    with ExitStack() as stack:
        us = stack.enter_context(started(ours, ONE_THREAD))
        them = stack.enter_context(started(torch, ONE_THREAD))
        for name in names:
            asks: dict[str, Ask] = {
                mode: lambda mode=mode, name=name: us.reply(name, mode, STEPS)
                for mode in ("one", "two", "late", "single")
            }
            asks["torch one"] = lambda name=name: them.reply(name, "one", STEPS)
            asks["DDP"] = lambda name=name: them.reply(name, "two", STEPS)
            yield {"model": name, "batch": wide.BATCH[name], **_race(asks, pairs), "load": load()}


def _race(asks: Mapping[str, Ask], pairs: int) -> dict[str, float]:
    """Medians of alternating rounds."""
    for ask in asks.values():
        ask()
    rounds = [{name: ask() for name, ask in asks.items()} for _ in range(pairs)]

    def ratio(one: str, other: str, what: str = "ms") -> float:
        return median(round_[one][what] / round_[other][what] for round_ in rounds)

    medians = {name: median(round_[name]["ms"] for round_ in rounds) for name in asks}
    medians["two ÷ DDP"] = ratio("two", "DDP")
    medians["cpu ÷ DDP's"] = ratio("two", "DDP", "cpu")
    medians["one ÷ two"] = ratio("one", "two")
    medians["exposed ÷ step"] = median(
        round_["two"]["exposed"] / round_["two"]["ms"] for round_ in rounds
    )
    medians["overlap ÷ off"] = ratio("two", "late")
    medians["buckets ÷ off"] = ratio("two", "single")
    return medians


def measure_starts(rounds: int) -> list[Row]:
    """Rows of an empty step in microseconds, and of a first run in seconds."""
    command = [sys.executable, str(WORKERS / "fluid_devices.py")]
    with started(command, ONE_THREAD) as peer:
        peer.ask("empty", "two", EMPTY_STEPS)
        empty = [peer.ask("empty", "two", EMPTY_STEPS) * 1e3 for _ in range(max(rounds, 10))]
    firsts = [_first_run(command) for _ in range(max(rounds // 4, 3))]
    return [
        _start("empty step, two devices", empty, "µs"),
        _start("first run of an executor", [first["seconds"] for first in firsts], "s"),
        _start("computing in it", [first["cpu"] for first in firsts], "s"),
    ]


def _first_run(command: Sequence[str]) -> dict[str, float]:
    done = subprocess.run(
        [*command, "first"], env={**os.environ, **ONE_THREAD}, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def _start(what: str, values: Sequence[float], unit: str) -> Row:
    return {
        "what": what, "median": median(values), "least": min(values), "unit": unit, "load": load(),
    }  # fmt: skip


def report(steps: Sequence[Row], starts: Sequence[Row]) -> str:
    """Both tables and the goals."""
    lines = [table("Training steps, ms", steps, COLUMNS)]
    for row in steps:
        name, ratio = row["model"], row["two ÷ DDP"]
        lines.append(goal(f"{name}: {ratio:.2f} of DDP's step", ratio <= 1.0, "≤ 1.0"))
        if name == "lenet_bn_large":
            faster = row["one ÷ two"]
            lines.append(goal(f"{name}: {faster:.2f} × one process", faster >= 1.25, "≥ 1.25"))
        if (os.cpu_count() or 1) > RANKS:
            off = row["overlap ÷ off"]
            lines.append(goal(f"{name}: overlap {off:.2f} of none", off <= 1.0, "≤ 1.0"))
    lines.append(table("Without much to compute", starts, START_COLUMNS))
    empty, first = (row["median"] for row in starts[:2])
    lines.append(goal(f"an empty step takes {empty:.0f} µs", empty <= 150, "≤ 150"))
    lines.append(goal(f"a first run takes {first:.1f} s", first <= 2, "≤ 2"))
    return "\n".join(lines)


# ---- beyond one machine -------------------------------------------------------------------------


def measure_rings(ranks: int, rounds: int = 15) -> dict[int, float]:
    """Median seconds of all-reduces between processes of this machine, by bytes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = "{}:{}".format(*free.getsockname())
    rest = [str(ranks), endpoint, str(rounds), *map(str, SIZES)]
    command = [sys.executable, str(WORKERS / "ring_times.py")]
    environment = {**os.environ, **ONE_THREAD}
    processes = [
        subprocess.Popen([*command, str(rank), *rest], env=environment, stdout=subprocess.PIPE)
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=180)[0] for process in processes]
    return {int(size): median(times) for size, times in json.loads(outputs[0]).items()}


def compare_rings(network: Network, measured: Mapping[int, Mapping[int, float]]) -> list[Row]:
    """Measured and predicted milliseconds of all-reduces."""
    return [
        {
            "ranks": ranks, "bytes": size, "measured": seconds * 1e3,
            "computed": (computed := network.all_reduce(size, ranks) * 1e3),
            "computed ÷ measured": computed / (seconds * 1e3), "load": load(),
        }
        for ranks, times in measured.items() for size, seconds in times.items()
    ]  # fmt: skip


def buckets(name: str) -> list[int]:
    """Bytes of the buckets of a model's gradients, the last parameter's first."""
    parameters = wide.model(fluid, name).main.all_parameters()
    sizes = [
        4 * math.prod(parameter.shape) for parameter in reversed(parameters) if parameter.trainable
    ]
    ends = [0, *itertools.accumulate(cut(sizes, None))]
    return [sum(sizes[start:stop]) for start, stop in itertools.pairwise(ends)]


def predict(compute: Mapping[str, float]) -> list[Row]:
    """Predict steps between machines, each with its own batch, from the compute time of a step in
    ms.
    """
    rows: list[Row] = []
    for name, milliseconds in compute.items():
        for title, bandwidth in NETWORKS.items():
            row: dict[str, Any] = {"model": name, "network": title, "1": milliseconds}
            for count in MACHINES:
                network = Network(MESSAGE, bandwidth)
                wait = exposed(milliseconds / 1e3, buckets(name), network, count)
                row[str(count)] = milliseconds + wait * 1e3
            rows.append(row)
    return rows


def scaling() -> dict[str, list[Row]]:
    """Measure Gloo here, fit the model, and print its predictions beyond one machine."""
    measured = {ranks: measure_rings(ranks) for ranks in (2, 3)}
    network = fitted(measured[2])
    print(f"latency {network.latency * 1e6:.0f} µs, bandwidth {network.bandwidth / 1e9:.2f} GB/s")
    rings = compare_rings(network, measured)
    columns = {"ranks": "d", "bytes": ",d", "measured": ".2f", "computed": ".2f"}
    print(table("All-reduces here, ms", rings, {**columns, "computed ÷ measured": ".2f"}))
    with started([sys.executable, str(WORKERS / "fluid_devices.py")], ONE_THREAD) as peer:
        compute = {name: _computing(peer, name) for name in wide.BATCH}
        steps = list(_check_steps(peer, network, compute))
    columns = {"model": "", "computed": ".2f", "cpu of rank 0": ".2f", "measured": ".2f"}
    print(table("Steps of two processes here, ms", steps, columns))
    rows = predict(compute)
    columns = {"model": "", "network": "", **{str(count): ".2f" for count in (1, *MACHINES)}}
    print(table("Steps of several machines, ms, computed", rows, columns))
    return {"rings": rings, "modelled": steps, "predicted": rows}


def _computing(peer: Any, name: str) -> float:
    """Compute time in ms of one device in a step of half a batch."""
    peer.ask(name, "half", STEPS)
    return median(peer.reply(name, "half", STEPS)["cpu"] for _ in range(PAIRS))


def _check_steps(peer: Any, network: Network, compute: Mapping[str, float]) -> Iterator[Row]:
    for name, milliseconds in compute.items():
        peer.ask(name, "two", STEPS)
        replies = [peer.reply(name, "two", STEPS) for _ in range(PAIRS)]
        wait = exposed(milliseconds / 1e3, buckets(name), network, RANKS) * 1e3
        yield {
            "model": name, "computed": milliseconds + wait,
            "cpu of rank 0": median(reply["cpu"] for reply in replies),
            "measured": median(reply["ms"] for reply in replies), "load": load(),
        }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(wide.BATCH), choices=wide.BATCH)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--model", action="store_true", help="compute steps beyond one machine")
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    options = parser.parse_args()
    if options.model:
        rows = scaling()
    else:
        rows = {"devices": list(measure(options.models, options.pairs))}
        rows["starts"] = measure_starts(options.pairs)
        print(report(rows["devices"], rows["starts"]))
    if options.json:
        append(options.json, rows)


if __name__ == "__main__":
    main()
