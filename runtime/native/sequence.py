"""Sequences of kernels: what generated modules make at binding and call at each step.

    run = native([
        ("add", (a, b, c, 1000), 8, 1000, 12000),   # kernel, arguments, units, flops, bytes
        ("scale", (native.feed(0, "float32"), c), 1),
    ])
    run(x)                                       # the addresses of feeds may change in each call

A call writes the addresses of the feeds into the arguments, and makes one call of the executor,
which releases Python's lock. Arrays are kept alive by the sequence.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from compiler.codegen.native.executor import executor_text
from compiler.codegen.native.host import host_machine
from compiler.codegen.native.machine import MACHINES, Machine
from compiler.errors import CompileError
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.settings.fluid import FLUID_CPU
from runtime.native.addresses import DATA, address, read_address
from runtime.native.executor import (
    ALONE,
    COMMAND_WORDS,
    EXECUTOR,
    SEQUENCE_WORDS,
    NativeExecutor,
    executor,
    executor_object,
    is_loaded,
    ticks_per_second,
)
from runtime.native.memory import Code, load
from runtime.native.object_cache import digest, objects
from runtime.native.repeated import (
    Repeated,
    at,
    columns,
    expect_at_most,
    indices,
    most,
    offsets,
    repeated_record,
)
from runtime.native.sharing import SHARED_FROM, WAKES_FROM, how_to_share, share
from runtime.native.threads import available, pool


@dataclass(frozen=True)
class Feed:
    """An argument that is an array given at each call, by its position among the feeds."""

    index: int
    dtype: str


@dataclass(frozen=True)
class Number:
    """An integer given at each call, by its position among the feeds."""

    index: int


_LATE = (Feed, Number)
Argument: TypeAlias = Array | int | Feed | Number
FullCommand: TypeAlias = tuple[str, Sequence[Argument], int, int | Number]
"""A kernel's name, its arguments, its units and its work: flops plus bytes."""
Site: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""What errors about a command name: its arguments, and its ops, each with the user's line."""
Command: TypeAlias = (
    tuple[str, Sequence[Argument], int]
    | tuple[str, Sequence[Argument], int, int]
    | tuple[str, Sequence[Argument], int, Number]
    | tuple[str, Sequence[Argument], int, int, int]
    | tuple[str, Sequence[Argument], int, Site]
    | tuple[str, Sequence[Argument], int, int, int, Site]
)
"""A command that may lack its work, or has it as two numbers: flops, and bytes; in checking mode
with its site."""
Run: TypeAlias = Callable[..., None]
"""Runs a sequence on the arrays of its feeds."""
Recorder: TypeAlias = Callable[[Sequence[str], Sequence[float]], object]
"""Receives the kernels of a sequence and the nanoseconds that each took."""


class NativeCode:
    """Kernels in memory: `addresses` of their entries, and sequences of calls of them.

    Made from the IR text of each kernel by name, for the machine of that name or the best one here.
    Object files come from the cache on disk, or are compiled; kernels that the process has loaded
    are used again. `threads` is the most that share a command, at most and by default `available`.
    `built` are object files from `build_objects`, which are used instead of those in the cache;
    they need no IR text.
    Raises CompileError if there is no such machine here, and for invalid IR.
    """

    def __init__(
        self,
        kernels: Mapping[str, str],
        machine: str | None = None,
        threads: int | None = None,
        built: Mapping[str, bytes] | None = None,
    ) -> None:
        self.machine = _machine(machine)
        self.threads = min(threads or available(), available())
        object_files = built or {}
        kernels = {**dict.fromkeys(object_files, ""), **kernels}
        kernels.pop(EXECUTOR, None)
        self._code = _code(kernels, self.machine, object_files)
        self._executor = executor(self.machine, object_files.get(EXECUTOR))
        self.addresses = {name: code.addresses[name] for name, code in self._code.items()}
        self._recorder: Recorder | None = None
        self._calls: dict[str, _Call] = {}

    at, columns, most = staticmethod(at), staticmethod(columns), staticmethod(most)
    indices, offsets = staticmethod(indices), staticmethod(offsets)
    expect_at_most = staticmethod(expect_at_most)

    def feed(self, index: int, dtype: str) -> Feed:
        """A placeholder for feed number `index` of the sequence, a C-contiguous array."""
        return Feed(index, dtype)

    def number(self, index: int) -> Number:
        """A placeholder for an integer that is feed number `index`: an argument, or the work."""
        return Number(index)

    def call(
        self, kernel: str, arguments: Sequence[Array | int], units: int, work: int = 0
    ) -> None:
        """Run one kernel, whose arguments are known in the step only; `work` is flops and bytes."""
        if units > 0:
            call = self._calls.get(kernel)
            if call is None:
                call = self._calls[kernel] = _Call(self, kernel, len(arguments), self._executor)
            call(arguments, units, work)

    def repeat(self, count: int, commands: Sequence[Repeated]) -> None:
        """Run commands `count` times in order, as `repeated` describes them."""
        if count > 0:
            native = self._executor
            record, owner = repeated_record(self.addresses, count, commands, self.threads)
            if native.run(record):
                pool().start(native)
            del owner

    def timed(self, recorder: Recorder) -> NativeCode:
        """The same kernels, of which each call of a sequence reports its times."""
        timed = object.__new__(type(self))
        timed.__dict__ |= self.__dict__ | {"_recorder": recorder}
        return timed

    def __call__(self, commands: Iterable[Command]) -> Run:
        """Prepare commands for running in order; those without units are left out.

        Arrays must be C-contiguous. Raises CompileError for an unknown kernel and for an array that
        is not contiguous.
        """
        sequence = self._sequence([command for command in commands if command[2] > 0])
        return sequence.untimed() if self._recorder is None else sequence.timed(self._recorder)

    def _sequence(self, commands: Sequence[Command]) -> KernelSequence:
        return KernelSequence(self, commands, self._executor)


class _Call:
    """The records of a call of one kernel."""

    def __init__(self, code: NativeCode, kernel: str, count: int, native: NativeExecutor) -> None:
        self._slots = (ctypes.c_int64 * max(1, count))()
        words = (_address(code, kernel), ctypes.addressof(self._slots), 0, ALONE)
        self._command = (ctypes.c_int64 * COMMAND_WORDS)(*words)
        most = code.threads
        self._record = (ctypes.c_int64 * SEQUENCE_WORDS)(
            ctypes.addressof(self._command), 1, most, pool().address if most > 1 else 0, 0
        )
        self._executor, self._at = native, ctypes.addressof(self._record)
        self._is_threaded = most > 1

    def __call__(self, arguments: Sequence[Array | int], units: int, work: int) -> None:
        """Run the kernel; arrays must be C-contiguous."""
        self._slots[: len(arguments)] = [  # at once: each assignment to ctypes takes a moment
            argument if isinstance(argument, int) else address(argument) for argument in arguments
        ]
        self._command[2] = units
        is_large = self._is_threaded and work >= SHARED_FROM
        self._command[3] = int(share([units], [work])[0]) if is_large else ALONE
        if self._executor.run(self._at):
            pool().start(self._executor)


class KernelSequence:
    """The records of a sequence: commands, arguments, and the arrays that they refer to."""

    def __init__(self, code: NativeCode, given: Sequence[Command], native: NativeExecutor) -> None:
        commands = [_full(command) for command in given]
        self._names = [name for name, *_ in commands]
        self._executor = native
        self._code = code  # keeps its kernels in memory
        arguments = [own for _, own, *_ in commands]
        starts = self._starts([len(own) for own in arguments])
        self._slots = (ctypes.c_int64 * max(1, starts[-1]))()
        self._fill_in(starts, arguments)
        sharing = share(
            [units for *_, units, _ in commands],
            [0 if isinstance(work, Number) else work for *_, work in commands],
        ).tolist()
        self._late = _late_work(commands) if code.threads > 1 else []
        most = code.threads if any(sharing) or self._late else 1
        base = ctypes.addressof(self._slots)
        words = [
            word
            for (name, _, units, _), start, shared in zip(commands, starts, sharing, strict=False)
            for word in (_address(code, name), base + 8 * start, units, shared)
        ]
        assert len(words) == COMMAND_WORDS * len(commands)
        self._commands = (ctypes.c_int64 * max(1, len(words)))(*words)
        self._record = (ctypes.c_int64 * SEQUENCE_WORDS)(
            ctypes.addressof(self._commands), len(commands), most,
            pool().address if most > 1 else 0, 0,
        )  # fmt: skip

    def _starts(self, counts: Sequence[int]) -> list[int]:
        """Where the arguments of each command start, given how many it has; then the end of all."""
        return [*accumulate(counts, initial=0)]

    def _fill_in(self, starts: Sequence[int], arguments: Sequence[Sequence[Argument]]) -> None:
        """Fill in the arguments of each command, and note those that feeds will.

        Thousands of arguments are a few hundred objects, and a batch of another size waits here:
        each object is looked at once.
        """
        distinct = {id(argument): argument for own in arguments for argument in own}
        words = {key: _word(argument) for key, argument in distinct.items()}
        self._arrays = [a for a in distinct.values() if isinstance(a, np.ndarray)]
        late: list[tuple[int, Feed | Number]] = []
        late_keys = {key for key, argument in distinct.items() if isinstance(argument, _LATE)}
        for start, own in zip(starts, arguments, strict=False):
            keys = [*map(id, own)]
            self._slots[start : start + len(own)] = [words[key] for key in keys]
            if not late_keys.isdisjoint(keys):
                late += [(place, a) for place, a in enumerate(own, start) if isinstance(a, _LATE)]
        self._feeds = [(place, feed.index) for place, feed in late if isinstance(feed, Feed)]
        self._numbers = [(place, n.index) for place, n in late if isinstance(n, Number)]

    def untimed(self) -> Run:
        """The function that runs the sequence."""
        if not self._names:
            return _nothing
        call, record, start = self._executor.run, ctypes.addressof(self._record), self._start
        slots, feeds, word, data = self._slots, self._feeds, ctypes.c_int64.from_address, DATA

        def run(*arrays: Array) -> None:
            for place, index in feeds:
                slots[place] = word(id(arrays[index]) + data).value  # as `read_address`
            if call(record):
                start()

        def run_portably(*arrays: Array) -> None:
            for place, index in feeds:
                slots[place] = address(arrays[index])
            if call(record):
                start()

        direct = run if address is read_address else run_portably
        return self._numbered(direct) if self._numbers or self._late else direct

    def _numbered(self, run: Run) -> Run:
        """A run that first takes the integers of this call: arguments, and the work to share."""
        slots, numbers, commands, late = self._slots, self._numbers, self._commands, self._late

        def run_numbered(*given: Any) -> None:
            for place, index in numbers:
                slots[place] = given[index]
            for place, index, units in late:
                commands[place] = how_to_share(units, given[index])
            run(*given)

        return run_numbered

    def timed(self, recorder: Recorder) -> Run:
        """The function that runs the sequence and reports the time of each command."""
        stamps = (ctypes.c_int64 * (len(self._names) + 1))()
        self._record[4] = ctypes.addressof(stamps)
        scale = 1e9 / ticks_per_second(self._executor)
        run = self.untimed()

        def run_timed(*arrays: Array) -> None:
            run(*arrays)
            recorder(self._names, [(end - begin) * scale for begin, end in pairwise(stamps)])

        return run_timed if self._names else _nothing

    def _start(self) -> None:
        """Start the workers that the executor would have shared commands with."""
        pool().start(self._executor)


def _word(argument: Argument) -> int:
    """What a kernel is passed for an argument; 0 for one that a feed will fill in."""
    if isinstance(argument, np.ndarray):
        if not argument.flags.c_contiguous:
            raise CompileError(f"an array of strides {argument.strides} is not contiguous")
        return address(argument)
    return 0 if isinstance(argument, _LATE) else argument


def _nothing(*_: Array) -> None:
    """Run a sequence without commands."""


def _late_work(commands: Sequence[FullCommand]) -> list[tuple[int, int, int]]:
    """Commands whose work each call gives: the word of their sharing, the feed, and the units."""
    return [
        (COMMAND_WORDS * number + COMMAND_WORDS - 1, work.index, units)
        for number, (*_, units, work) in enumerate(commands)
        if isinstance(work, Number)
    ]


def _full(command: Command) -> FullCommand:
    """A command with its work; one that does not tell is taken to be large."""
    name, arguments, units, *more = command
    if more and isinstance(more[0], Number):
        return name, arguments, units, more[0]
    work = [word for word in more if isinstance(word, int)]
    return name, arguments, units, sum(work) if work else WAKES_FROM


def _address(code: NativeCode, name: str) -> int:
    if name not in code.addresses:
        raise CompileError(f"there is no kernel {name!r}")
    return code.addresses[name]


_loaded: WeakValueDictionary[str, Code] = WeakValueDictionary()
"""The code in memory, by the digest of each kernel in it: of its object file if that was given."""


def build_objects(kernels: Mapping[str, str], machine: str) -> dict[str, bytes]:
    """Object files of kernels and of the executor, for a machine that this CPU need not be.

    With them, `NativeCode` needs neither the cache nor llvmlite. Raises CompileError on systems
    where LLVM writes no ELF objects by itself, and for invalid IR.
    """
    if sys.platform != "linux":
        raise CompileError(f"object files for CPUs are built on Linux only, not on {sys.platform}")
    target = MACHINES[machine]
    return {EXECUTOR: executor_object(target), **objects(kernels, target, available())}


def _code(
    kernels: Mapping[str, str], machine: Machine, built: Mapping[str, bytes]
) -> dict[str, Code]:
    """Load kernels, except those that are in memory already."""
    keys = {
        name: sha256(built[name]).hexdigest() if name in built else digest(text, machine)
        for name, text in kernels.items()
    }
    loaded = {name: code for name, key in keys.items() if (code := _loaded.get(key)) is not None}
    missing = {name: text for name, text in kernels.items() if name not in loaded}
    if missing:
        unbuilt = {name: text for name, text in missing.items() if name not in built}
        files = {name: built[name] for name in missing if name in built}
        files |= _objects_and_executor(unbuilt, machine, EXECUTOR in built)
        code = load(files, {name: [name] for name in files})
        for name in missing:
            _loaded[keys[name]] = loaded[name] = code
    return loaded


def _objects_and_executor(
    kernels: Mapping[str, str], machine: Machine, has_executor: bool
) -> dict[str, bytes]:
    """Object files of kernels; an executor that is still missing is compiled beside them."""
    if has_executor or is_loaded(machine):
        return objects(kernels, machine, available())
    built = objects({EXECUTOR: executor_text(machine), **kernels}, machine, available())
    executor(machine, built.pop(EXECUTOR))
    return built


def _machine(name: str | None) -> Machine:
    return host_machine() if name is None else host_machine({FLUID_CPU.name: name})
