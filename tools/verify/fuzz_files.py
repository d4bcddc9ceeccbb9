"""Damaged files of programs, parameters and states: rejected with a message, or read.

No crash, no hang, and no more memory than twice that for the undamaged file. The files are those
that Paddle 1.8.5 saved for the tests, and a case is determined by its number and `--seed`. With
`--compile`, readable programs are compiled too; with `--run`, they may also contain hostile
strings, and small compiled programs are run, while a guard checks that nothing else is executed,
written or called. Failures are reported with their number and their file is kept in the folder of
`--keep DIR`; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import compiler
from bench.support.lines import append
from bench.support.table import Row, goal, table
from compiler.codegen.module import Module
from compiler.errors import CompileError
from compiler.ir.model_format.program_desc import dump_program, load_program
from compiler.ir.model_format.protobuf import Message, ProtoError, dump, parse
from fluid.framework import Program
from fluid.saving.state_file import load_state
from runtime.files.checkpoint import CheckpointError, load_combined, load_tensor
from tools.verify.attacks.payloads import PAYLOADS, executed
from tools.verify.support.damage import damaged_bytes, damaged_fields, words_of
from tools.verify.support.guard import Guard
from tools.verify.support.small_runs import runs

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
CHUNK = 2_500
"""Cases per process, so that a crash ends few of them."""

TIMES = 2
SPARE = 64 << 10
"""Additional bytes that any reading may take: for messages and lookup tables."""

SECONDS, WAIT = 10, 90
"""CPU and wall-clock seconds: a case that takes more of either hangs."""

CAP = 4 << 30
"""Maximum address space of a process in bytes."""

FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError,
    RuntimeError, StopIteration, TypeError, ValueError,
)  # fmt: skip
"""Errors that are not messages to a user; other Python errors end the process, also reported."""

BYTES, FIELDS, TENSOR, COMBINED = "program: bytes", "program: fields", "parameter", "parameters"
STATE = "state"
COLUMNS = {"files": "", "cases": ",d", "refused": ",d", "read": ",d", "compiled": ",d"}
COLUMNS |= {
    "run": ",d",
    "endless": ",d",
    "memory ÷ honest": ".2f",
    "slowest ms": ".1f",
    "failed": ",d",
}


@dataclass(frozen=True)
class Original:
    """A file that the reference wrote, how it is damaged, and the names in it."""

    kind: str
    data: bytes
    names: Sequence[str] = ()


@dataclass
class Tally:
    """Outcomes of the cases of one kind; failures by the number of the case."""

    cases: int = 0
    refused: int = 0
    read: int = 0
    compiled: int = 0
    run: int = 0
    endless: int = 0
    memory: float = 0.0
    slowest: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for name in ("cases", "refused", "read", "compiled", "run", "endless"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.memory = max(self.memory, other.memory)
        self.slowest = max(self.slowest, other.slowest)
        self.failures |= other.failures


# ---- files, and what is done to them ------------------------------------------------------------


def originals() -> list[Original]:
    """Programs, single-parameter files, combined files and files of `fluid.save`: equally many of
    each.
    """
    files: list[Original] = []
    states = [path.read_bytes() for path in sorted((GOLDEN / "state").glob("model.pd[op][pa]*"))]
    for place, folder in enumerate(sorted((GOLDEN / "inference").glob("*__separate"))):
        program = folder / "__model__"
        tensors = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != program]
        combined = folder.with_name(folder.name.replace("separate", "combined")) / "params"
        names = [path.relative_to(folder).as_posix() for path in tensors]
        smallest = min(tensors, key=lambda path: path.stat().st_size)
        files += [Original(kind, program.read_bytes()) for kind in (BYTES, FIELDS)]
        files += [Original(TENSOR, smallest.read_bytes())]
        files += [Original(COMBINED, combined.read_bytes(), names)]
        files += [Original(STATE, states[place % len(states)])]
    return files


def damaged(original: Original, chance: Random, other: bytes, words: Sequence[str] = ()) -> bytes:
    """The bytes of a damaged file; the original's if damaged fields cannot be written.

    Strings become others of the file, or some of `words`.
    """
    if original.kind != FIELDS:
        return damaged_bytes(chance, original.data, other)
    message, own = _parsed(original.data)
    try:
        return dump(damaged_fields(chance, message, [*own, *words]))
    except ProtoError:
        return original.data


@cache
def _parsed(data: bytes) -> tuple[Message, list[str]]:
    message = parse(data)
    return message, words_of(message)


def read(original: Original, path: Path) -> Program | None:
    """Read a file as the kind of the original; return the program, if it is one.

    Raises CompileError or CheckpointError if it is rejected.
    """
    if original.kind == TENSOR:
        load_tensor(path)
    elif original.kind == COMBINED:
        load_combined(path, original.names)
    elif original.kind == STATE:
        load_state(path.read_bytes(), path.name)
    else:
        return load_program(path.read_bytes(), path.name, factory=Program)
    return None


def expect_itself(program: Program) -> None:
    """Raise AssertionError if a program changes when written and read."""
    try:
        written = dump_program(program)
    except CompileError:
        return
    assert dump_program(load_program(written)) == written, "written and read it is another program"


def compiled(program: Program) -> Module | None:
    """The module of a program between its feed and its fetch ops; None if it is rejected."""
    ops = program.global_block().ops
    feeds = [name for op in ops if op.type == "feed" for name in op.writes()]
    fetches = [name for op in ops if op.type == "fetch" for name in op.reads()]
    try:
        return compiler.compile(program, feed=feeds, fetch=fetches)
    except CompileError:
        return None


def loops(program: Program) -> bool:
    """Whether a program has a loop count of its own, which is unbounded."""
    return any(op.type in ("while", "recurrent") for block in program.blocks for op in block.ops)


# ---- cases --------------------------------------------------------------------------------------


class Fuzzer:
    """Runs cases by their numbers and counts outcomes."""

    def __init__(
        self, folder: Path, seed: int, compile_too: bool, keep: Path | None, run_too: bool = False
    ) -> None:
        self.tallies: dict[str, Tally] = {}
        self._originals = originals()
        self._path = folder / "damaged"
        self._seed, self._compile_too, self._keep = seed, compile_too, keep
        self._words = tuple(PAYLOADS.values()) if run_too else ()
        self._guard = Guard(folder) if run_too else None
        for _ in range(2):  # the first reading also fills what is kept for all
            self._honest = [self._read(original, original.data)[1] for original in self._originals]

    def run(self, index: int) -> None:
        """Damage a file and read it."""
        chance = Random(f"{self._seed}/{index}")
        place = index % len(self._originals)
        original = self._originals[place]
        data = damaged(original, chance, chance.choice(self._originals).data, self._words)
        tally = self.tallies.setdefault(original.kind, Tally())
        tally.cases += 1
        try:
            self._count(tally, original, data, self._honest[place])
        except FAULTS as error:
            tally.failures[index] = f"{type(error).__name__}: {error}"
            if self._keep is not None:
                (self._keep / f"case-{index}").write_bytes(data)

    def _count(self, tally: Tally, original: Original, data: bytes, honest: int) -> None:
        program, taken, spent, refused = self._read(original, data)
        tally.slowest = max(tally.slowest, spent * 1e3)
        allowed = honest * max(1.0, len(data) / len(original.data))
        if taken > TIMES * allowed + SPARE:  # the first such reading also imports modules
            taken = self._read(original, data)[1]
        tally.memory = max(tally.memory, (taken - SPARE) / allowed)
        assert taken <= TIMES * allowed + SPARE, f"{taken:,} bytes are taken, not {allowed:,.0f}"
        tally.refused += refused
        tally.read += not refused
        if program is not None:
            expect_itself(program)
            if self._compile_too:
                self._compile(tally, program)
        if self._guard is not None:
            assert not self._guard.seen, f"was tried: {self._guard.seen}"
            assert not executed(), "code of the file was executed"

    def _compile(self, tally: Tally, program: Program) -> None:
        """Compile a program, and with `--run` run the result."""
        module = timed(lambda: compiled(program))[0]
        tally.compiled += module is not None
        if module is None or self._guard is None:
            return
        try:
            tally.run += timed(lambda: runs(module))[0]
        except TimeoutError:
            if not loops(program):
                raise
            tally.endless += 1

    def _read(self, original: Original, data: bytes) -> tuple[Program | None, int, float, bool]:
        """The program if there is one, peak bytes, seconds, whether it was rejected."""
        self._path.write_bytes(data)
        tracemalloc.start()
        try:
            program, spent = timed(lambda: read(original, self._path))
            return program, tracemalloc.get_traced_memory()[1], spent, False
        except (CompileError, CheckpointError):
            return None, tracemalloc.get_traced_memory()[1], 0.0, True
        finally:
            tracemalloc.stop()


def timed(call: Callable[[], object]) -> tuple:
    """The result of a call and its seconds; TimeoutError if it hangs."""
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _hang)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(WAIT)
    start = time.perf_counter()
    try:
        return call(), time.perf_counter() - start
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def _hang(number: int, frame: object) -> NoReturn:
    raise TimeoutError(f"takes more than {SECONDS} s of the processor, or {WAIT} s")


def fuzz(
    indices: Iterable[int], seed: int = 0, compile_too: bool = False, keep: Path | None = None,
    run_too: bool = False,
) -> dict[str, Tally]:  # fmt: skip
    """Run the cases of these numbers in this process; tallies by kind of file."""
    with TemporaryDirectory(prefix="fuzz-") as folder:
        fuzzer = Fuzzer(Path(folder), seed, compile_too or run_too, keep, run_too)
        for index in indices:
            fuzzer.run(index)
        return fuzzer.tallies


# ---- processes ----------------------------------------------------------------------------------


def fuzz_apart(given: argparse.Namespace) -> dict[str, Tally]:
    """Run all requested cases, in consecutive processes."""
    tallies: dict[str, Tally] = {}
    stop = given.start + given.count
    for start in range(given.start, stop, CHUNK):
        for kind, tally in _chunk(given, start, min(CHUNK, stop - start)).items():
            tallies.setdefault(kind, Tally()).add(tally)
    return tallies


def _chunk(given: argparse.Namespace, start: int, count: int) -> dict[str, Tally]:
    command = [sys.executable, __file__, "--worker", "--start", str(start), "--count", str(count)]
    command += ["--seed", str(given.seed), *(["--compile"] if given.compile else [])]
    command += ["--run"] if given.run else []
    command += ["--keep", str(given.keep)] if given.keep else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = f"cases to {start + count - 1} ended with {done.returncode}: {done.stderr[-400:]}"
        return {"process": Tally(failures={start: last})}
    tallies_as_json = json.loads(done.stdout)
    return {kind: _tally(tally) for kind, tally in tallies_as_json.items()}


def _tally(record: Mapping) -> Tally:
    failures = {int(index): what for index, what in record["failures"].items()}
    return Tally(**{**record, "failures": failures})


def _work(given: argparse.Namespace) -> None:
    """Run cases here, with a memory limit, and print the tallies as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (CAP, CAP))
    indices = range(given.start, given.start + given.count)
    tallies = fuzz(indices, given.seed, given.compile, given.keep, given.run)
    print(json.dumps({kind: asdict(tally) for kind, tally in tallies.items()}))


# ---- output -------------------------------------------------------------------------------------


def rows_of(tallies: Mapping[str, Tally]) -> list[Row]:
    """A row for each kind of file."""
    return [
        {"files": kind, "cases": tally.cases, "refused": tally.refused, "read": tally.read}
        | {"compiled": tally.compiled, "run": tally.run, "endless": tally.endless}
        | {"memory ÷ honest": max(tally.memory, 0.0)}
        | {"slowest ms": tally.slowest, "failed": len(tally.failures)}
        for kind, tally in tallies.items()
    ]


def report(tallies: Mapping[str, Tally]) -> str:
    """The table, the failures, and whether the goal is met."""
    failures = {index: what for tally in tallies.values() for index, what in tally.failures.items()}
    cases = sum(tally.cases for tally in tallies.values())
    return "\n".join([
        table("Damaged files", rows_of(tallies), COLUMNS),
        *(f"  case {index}: {what}" for index, what in sorted(failures.items())),
        goal(f"{len(failures)} of {cases:,} damaged files fail", not failures, "0"),
    ])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz and print; return 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="how many cases (%(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first one's number")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    parser.add_argument("--compile", action="store_true", help="compile readable programs")
    parser.add_argument("--run", action="store_true", help="and run small ones")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave files that fail here")
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if options.worker:
        _work(options)
        return 0
    tallies = fuzz_apart(options)
    print(report(tallies))
    if options.json:
        append(options.json, {"fuzz_files": rows_of(tallies)})
    return int(any(tally.failures for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
