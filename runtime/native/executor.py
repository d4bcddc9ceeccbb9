"""Loads the native executor, which runs sequences of commands; see compiler/codegen/native."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from time import perf_counter_ns, sleep

from compiler.codegen.native.executor import executor_text
from compiler.codegen.native.machine import Machine
from compiler.support.dataclass import dataclass
from runtime.native.memory import Code, load
from runtime.native.object_cache import objects

COMMAND_WORDS = 4
"""64-bit words of a command: kernel, arguments, units, sharing."""
SEQUENCE_WORDS = 5
"""64-bit words of a sequence: commands, their number, most threads, pool, clock readings."""
ALONE, SHARED, WAKES = 0, 1, 2
"""Sharing of a command: on the calling thread; with threads that are awake; waking all first."""

EXECUTOR = "executor"
"""The name of the executor's object file."""
_NAMES = ("run", "worker", "stop", "clock")


@dataclass(frozen=True, eq=False)
class NativeExecutor:
    """The compiled executor for one machine.

    `run(sequence)` returns 1 if a command could have been shared, but no worker was started;
    `worker(pool, thread)` returns when `stop(pool)` was called; `clock()` reads its clock. Records
    are passed as addresses.
    """

    code: Code
    run: Callable[[int], int]
    worker: Callable[[int, int], None]
    stop: Callable[[int], None]
    clock: Callable[[], int]


@cache
def ticks_per_second(executor: NativeExecutor) -> float:
    """The rate of an executor's clock, measured against Python's."""
    first, start = executor.clock(), perf_counter_ns()
    sleep(0.002)
    ticks, elapsed = executor.clock() - first, perf_counter_ns() - start
    return ticks * 1e9 / elapsed


_loaded: dict[Machine, NativeExecutor] = {}
"""The executors of this process."""


def executor(machine: Machine, built: bytes | None = None) -> NativeExecutor:
    """The executor for a machine, once for each process.

    `built` is its object file; without, it is compiled or comes from the cache. Raises CompileError
    as `objects`.
    """
    if machine not in _loaded:
        _loaded[machine] = _load(executor_object(machine) if built is None else built)
    return _loaded[machine]


def is_loaded(machine: Machine) -> bool:
    """Whether this process has the executor for a machine."""
    return machine in _loaded


def executor_object(machine: Machine) -> bytes:
    """The object file of the executor. Raises CompileError as `objects`."""
    return objects({EXECUTOR: executor_text(machine)}, machine)[EXECUTOR]


def _load(built: bytes) -> NativeExecutor:
    code = load({EXECUTOR: built}, {EXECUTOR: _NAMES})
    word = ctypes.c_int64
    kinds = (
        ctypes.CFUNCTYPE(ctypes.c_int, word),
        ctypes.CFUNCTYPE(None, word, word),
        ctypes.CFUNCTYPE(None, word),
        ctypes.CFUNCTYPE(word),
    )
    functions = (kind(code.addresses[name]) for kind, name in zip(kinds, _NAMES, strict=True))
    return NativeExecutor(code, *functions)
