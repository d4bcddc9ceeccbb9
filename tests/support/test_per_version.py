"""Values cached per version of a program."""

from __future__ import annotations

import gc
import weakref
from threading import Barrier, Thread

from compiler.support.per_version import PerVersion


class Program:
    """A program with a version."""

    version = 0


def test_per_version_recomputes_after_an_edit() -> None:
    computed: list[int] = []
    results = PerVersion[Program, None](lambda program: computed.append(program.version))
    program, other = Program(), Program()
    assert results.get(program) is None
    for each in (program, other, program):
        assert results[each] is None
    program.version = 1
    assert results[program] is results[program] is None
    assert computed == [0, 0, 1]
    assert len(list(results.values())) == 2


def test_per_version_drops_results_of_collected_programs() -> None:
    results, program = PerVersion[Program, object](lambda program: Program()), Program()
    old = weakref.ref(results[program])
    program.version = 1
    new = weakref.ref(results[program])
    gc.collect()
    assert old() is None and new() is not None
    del program
    gc.collect()
    assert new() is None and list(results.values()) == []


def test_per_version_returns_one_result_to_threads_that_compute_at_once() -> None:
    meet = Barrier(4)

    def compute(program: Program) -> object:
        meet.wait(10)
        return object()

    results, program, seen = PerVersion(compute), Program(), list[object]()
    threads = [Thread(target=lambda: seen.append(results[program])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 and {*map(id, seen)} == {id(results.get(program))}
