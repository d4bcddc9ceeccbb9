"""Saves killed at random moments: a load must find all of the old version or all of the new.

For each kind of save a process that saves is sent SIGKILL, at moments spread over the duration of a
save. Every variable holds the number of its version, and so does the program. After each kill
everything is loaded, the next save runs, and remaining drafts are counted. `--times` prints the
duration of saves and loads of parameters of the size of a ResNet-50.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

import fluid
from bench.support.table import Row, table
from tools.verify.support.save_kinds import KINDS, Kind, Versioned, leftovers, save, versioned

OLD, NEW = 1, 2
COLUMNS = {"kind": "", "kills": ",d", "old": ",d", "new": ",d", "errors": ",d", "torn": ",d"}
COLUMNS |= {"drafts left": ",d", "save ms": ".1f", "seconds": ".1f"}
TRIES = 4
"""Processes per requested kill: one that finishes its save before the kill does not count."""

RESNET = (*[443_396] * 53, 2_048_000, 1000, *[500] * 212)
"""Element counts of the variables of a network of the size of a ResNet-50: 102 MB in 267 files."""


@dataclass
class Tally:
    """Results of loads after the kills of one kind of save."""

    found: Counter[str] = field(default_factory=Counter)
    left: int = 0
    milliseconds: float = 0.0

    @property
    def kills(self) -> int:
        """The number of saves killed before they were done."""
        return sum(self.found.values())

    @property
    def failed(self) -> bool:
        """Whether a load found a mixture, or the next save left drafts."""
        return bool(self.found["torn"] or self.left)


def main(arguments: Sequence[str]) -> int:
    """Run the attack; return 1 if a load found a mixture of versions."""
    parser = argparse.ArgumentParser(prog="attack.py saves", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of each kind (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (%(default)s)")
    parser.add_argument("--variables", type=int, default=24, help="of a program (%(default)s)")
    parser.add_argument("--size", type=int, default=50_000, help="numbers in each (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where to save (a temporary folder)")
    parser.add_argument("--times", action="store_true", help="print the time of saves instead")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="saves-", dir=options.folder) as space:
        if options.times:
            print(_times(Path(space)))
            return 0
        return _attack(options, Path(space))


def _attack(given: argparse.Namespace, space: Path) -> int:
    models = [versioned(version, given.variables, given.size) for version in (OLD, NEW)]
    rows: list[Row] = []
    failed = False
    for kind in KINDS:
        start = time.perf_counter()
        tally = attacked(kind, models[0], models[1], space / kind.name, given.kills, given.seed)
        rows.append(_row(kind, tally, time.perf_counter() - start))
        failed = failed or tally.failed or tally.kills < given.kills
    print(table("Saves killed at random moments, and the results of loads", rows, COLUMNS))
    return int(failed)


def _row(kind: Kind, tally: Tally, seconds: float) -> Row:
    outcomes = tally.found
    named = outcomes["old"] + outcomes["new"] + outcomes["torn"]
    numbers = (tally.kills, outcomes["old"], outcomes["new"], tally.kills - named, outcomes["torn"])
    rest = (tally.left, tally.milliseconds, seconds)
    return dict(zip(COLUMNS, (kind.name, *numbers, *rest), strict=True))


def attacked(
    kind: Kind, old: Versioned, new: Versioned, folder: Path, kills: int, seed: int
) -> Tally:
    """Kill saves of the new version over the old one, until `kills` were in time."""
    tally, chance = Tally(), Random(seed)
    save(kind, old, folder)
    lasted = statistics.median(_saved_in_child(kind, new, folder) for _ in range(5))
    tally.milliseconds = 1e3 * lasted
    for number in range(TRIES * kills):
        if tally.kills == kills:
            break
        save(kind, old, folder)
        moment = lasted * ((number % kills) + chance.random()) / kills
        if not _killed(kind, new, folder, moment):
            continue
        tally.found[outcome(kind, new, folder)] += 1
        save(kind, old, folder)
        tally.left += len(leftovers(folder))
    return tally


def outcome(kind: Kind, model: Versioned, folder: Path) -> str:
    """The result of a load: old, new, torn, or the name of the error raised."""
    try:
        values = kind.load(model, folder)
    except (ValueError, OSError) as error:
        return type(error).__name__
    versions: dict[tuple[float, ...], str] = {(OLD,): "old", (NEW,): "new"}
    return versions.get(tuple(values), "torn")


def _saved_in_child(kind: Kind, model: Versioned, folder: Path) -> float:
    """Seconds of a save in a child process."""
    child = _begun(kind, model, folder)
    start = time.perf_counter()
    os.waitpid(child, 0)
    return time.perf_counter() - start


def _killed(kind: Kind, model: Versioned, folder: Path, moment: float) -> bool:
    """Kill a save `moment` seconds after its start; False if it was already done."""
    child = _begun(kind, model, folder)
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _begun(kind: Kind, model: Versioned, folder: Path) -> int:
    """Start a process that has begun to save; return its PID."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, b".")
        save(kind, model, folder)
        os._exit(0)
    os.read(reader, 1)
    os.close(reader)
    os.close(writer)
    return child


# ---- how long saves take


def _times(space: Path) -> str:
    main, exe = fluid.Program(), fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        for index, size in enumerate(RESNET):
            main.global_block().create_parameter(name=f"p{index}", shape=[size], dtype="float32")
            value = np.full(size, index, np.float32)
            fluid.global_scope().var(f"p{index}").get_tensor().set(value, fluid.CPUPlace())
        folder, together = str(space / "separate"), str(space / "together")
        rows = [
            _timed("separate: save", lambda: fluid.io.save_params(exe, folder, main)),
            _timed("separate: load", lambda: fluid.io.load_params(exe, folder, main)),
            _timed("combined: save", lambda: fluid.io.save_params(exe, together, main, "all")),
            _timed("combined: load", lambda: fluid.io.load_params(exe, together, main, "all")),
            _timed("fluid.save", lambda: fluid.save(main, str(space / "state"))),
        ]
    columns = {"call": "", "least s": ".3f", "median s": ".3f", "most s": ".3f"}
    return table("Seconds for 102 MB of parameters, 267 variables", rows, columns)


def _timed(name: str, call: Callable[[], object], times: int = 7) -> Row:
    spent: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    middle = statistics.median(spent)
    return {"call": name, "least s": min(spent), "median s": middle, "most s": max(spent)}
