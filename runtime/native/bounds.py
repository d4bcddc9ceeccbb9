"""Kernels that check bounds: the records of what each argument may access, and the errors.

In front of a command's arguments are the records that its kernel compares accesses with; a kernel
writes its first access out of bounds into a report. See compiler/codegen/native/bounds/checks.ll.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from compiler.ir.types import Array
from runtime.errors import OutOfBounds
from runtime.native.addresses import address
from runtime.native.executor import NativeExecutor
from runtime.native.sequence import (
    Argument,
    Command,
    KernelSequence,
    NativeCode,
    Number,
    Run,
    Site,
)

RECORD_WORDS = 4
"""64-bit words of a record: the start of an array, its bytes, the report, the arguments' record."""
_INSTEAD = 4096
"""Bytes that are read, and as many that are written, instead of those out of bounds."""
_REPORT_WORDS = 8


class CheckedCode(NativeCode):
    """Kernels that check bounds; a sequence raises OutOfBounds after it ran, if one left an array.

    Kernels that follow in the sequence still run; nothing outside of arrays is read or written.
    """

    def __init__(
        self, kernels: Mapping[str, str], machine: str | None = None, threads: int | None = None,
        built: Mapping[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernels, machine, threads, built)
        self.report = _Report()

    def call(
        self,
        kernel: str,
        arguments: Sequence[Array | int],
        units: int,
        work: int = 0,
        site: Site = ((), ()),
    ) -> None:
        """Run one kernel, whose arguments are known in the step only; one thread runs it."""
        self([(kernel, arguments, units, 0, 0, site)])()

    def _sequence(self, commands: Sequence[Command]) -> KernelSequence:
        return _CheckedSequence(self, commands, self._executor)


class _Report:
    """Memory that kernels write their first access out of bounds into."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_int64 * (_REPORT_WORDS + 2 * _INSTEAD // 8))()
        self.address = ctypes.addressof(self._memory)

    def take(self) -> list[int] | None:
        """The words of the report, which is empty afterwards; None if it has none."""
        if not self._memory[0]:
            return None
        words = self._memory[:_REPORT_WORDS]
        self._memory[0] = 0
        return words


class _CheckedSequence(KernelSequence):
    """The records of a sequence whose kernels check bounds."""

    def __init__(self, code: CheckedCode, given: Sequence[Command], native: NativeExecutor) -> None:
        self._report = code.report
        self._given = given
        self._records: dict[int, tuple[int, int]] = {}
        """The words at which the record of an argument and that of all start, by its slot."""
        self._owners: dict[int, int] = {}
        """The number of a command by the word at which the record of its arguments starts."""
        super().__init__(code, given, native)
        for owner, number in self._owners.items():
            self._fill(owner, owner, self._word(owner + RECORD_WORDS), 8 * len(given[number][1]))

    def untimed(self) -> Run:
        """The function that runs the sequence, then raises OutOfBounds if a kernel reported."""
        start, record = self._start, ctypes.addressof(self._record)

        def run(*arrays: Array) -> None:
            for place, index in self._feeds:
                self._give(place, arrays[index])
            if self._executor.run(record):
                start()
            self._expect_nothing()

        return run

    def _starts(self, counts: Sequence[int]) -> list[int]:
        starts, end = list[int](), 0
        for number, count in enumerate(counts):
            owner = end + RECORD_WORDS * count
            start = owner + RECORD_WORDS
            self._owners[owner] = number
            for slot in range(count):
                self._records[start + slot] = owner - RECORD_WORDS * (slot + 1), owner
            starts.append(start)
            end = start + count
        return [*starts, end]

    def _fill_in(self, starts: Sequence[int], arguments: Sequence[Sequence[Argument]]) -> None:
        super()._fill_in(starts, arguments)
        for start, own in zip(starts, arguments, strict=False):
            for place, argument in enumerate(own, start):
                if isinstance(argument, np.ndarray):
                    self._give(place, argument)
                else:
                    self._fill(*self._records[place], 0, 0)

    def _give(self, place: int, array: Array) -> None:
        """Fill in an array and its bounds."""
        self._slots[place] = start = address(array)
        self._fill(*self._records[place], start, array.nbytes)

    def _fill(self, record: int, owner: int, start: int, nbytes: int) -> None:
        words = (start, nbytes, self._report.address, self._word(owner))
        self._slots[record : record + RECORD_WORDS] = words

    def _word(self, place: int) -> int:
        """The address of a word."""
        return ctypes.addressof(self._slots) + 8 * place

    def _expect_nothing(self) -> None:
        """Raise OutOfBounds if a kernel has written the report."""
        words = self._report.take()
        if words is None:
            return
        base = ctypes.addressof(self._slots)
        owner = (words[2] - base) // 8
        slot = (words[2] - words[1]) // (8 * RECORD_WORDS) - 1
        raise _error(self._given[self._owners[owner]], slot, words)


def _error(command: Command, slot: int, words: Sequence[int]) -> OutOfBounds:
    """The error about an access of a command that its kernel reported."""
    kernel, arguments = command[:2]
    names, ops = next(
        (argument for argument in command[3:] if not isinstance(argument, (int, Number))), ((), ())
    )
    _, _, _, offset, size, stores, nbytes, _ = words
    if slot == -1:
        array = "its list of arguments"
    elif not 0 <= slot < len(arguments):
        array = "an array of its own"
    else:
        array = f"argument {slot}" + (f" ({names[slot]})" if names else "")
    texts = [op.partition("  ")[0] for op in ops]
    lines = [op.partition("  ")[2] for op in ops]
    return OutOfBounds(
        f"kernel {kernel} {'writes' if stores else 'reads'} {size} bytes at offset {offset} of "
        f"{array}, which has {nbytes} bytes",
        op=" and ".join(texts),
        source=lines[-1] if lines else "",
        hint="this is an error of the native target; FLUID_TARGET=numpy runs without it",
    )
