"""The thread pool of native code: results, many callers, forks, exit, limits."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from compiler.errors import CompileError
from runtime.native import sequence, threads
from runtime.native.sequence import NativeCode
from runtime.native.threads import available, pool
from tests.runtime.native.kernels import count_calls, double, pauses, record_thread, sums

LIMITS = [variable.name for variable in threads.VARIABLES]
ROOT = Path(__file__).parents[3]
MOST_EARNED, EARNED = 688, 144
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="reads MXCSR")


@pytest.fixture
def eight(monkeypatch):
    """A pool of eight threads, which never gives up sharing; returns a loader of kernels."""
    monkeypatch.setattr(sequence, "available", lambda: 8)

    def load(*kernels, count=8):
        native = NativeCode({kernel.name: kernel.text() for kernel in kernels}, threads=count)
        pool().start(native._executor, 8)
        for offset in (MOST_EARNED, EARNED):
            pool()._word(offset).value = 1 << 60
        return native

    return load


@pytest.mark.parametrize("units", [1, 2, 3, 7, 64, 4095, 4096, 4097, 100_000])
def test_each_unit_runs_once(eight, units):
    native = eight(count_calls())
    counts = np.zeros(units, "i4")
    run = native([("count_calls", (counts,), units)] * 20)
    for _ in range(10):
        run()
    assert (counts == 200).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_results_do_not_depend_on_the_number_of_threads(eight, count):
    x = np.random.default_rng(3).standard_normal((501, 77), "f4")
    y, z = np.empty_like(x), np.empty(501, "f4")
    native = eight(double(), sums(), count=count)
    run = native([("double", (x, y, 77), 501), ("sums", (y, z, 77), 501)])
    alone = np.array([np.float32(0)] * 501)
    for column in (x * 2).T:
        alone += column
    for _ in range(50):
        z.fill(0)
        run()
        assert np.array_equal(z, alone)


def test_every_step_sees_the_results_of_the_last(eight):
    """A chain of steps, each of which reads what all threads wrote before."""
    native = eight(double())
    a, b = np.ones((64, 50), "f4"), np.empty((64, 50), "f4")
    run = native([("double", (a, b, 50), 64), ("double", (b, a, 50), 64)] * 10)
    for _ in range(20):
        a.fill(1)
        run()
        assert (a == 2.0**20).all()


def test_many_python_threads_run_at_once(eight):
    native = eight(double(), count_calls())
    failures = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((300, 40), "f4")
        y, counts = np.empty_like(x), np.zeros(300, "i4")
        run = native([
            ("double", (native.feed(0, "float32"), y, 40), 300),
            ("count_calls", (counts,), 300),
        ])  # fmt: skip
        for number in range(200):
            run(x)
            if not (np.array_equal(y, 2 * x) and (counts == number + 1).all()):
                failures.append(seed)
            x += 1

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert pool()._word(128).value == pool()._word(136).value == 0


@on_x86
def test_workers_take_part_and_flush_denormals(eight):
    native = eight(record_thread())
    stacks, modes = np.zeros(64, "i8"), np.zeros(64, "i4")
    run = native([("record_thread", (stacks, modes), 64)])
    for _ in range(1000):
        run()
        assert (modes & 0x8040 == 0x8040).all()
        if np.ptp(stacks) > 1 << 16:
            return
    pytest.fail("no worker took part")


@on_x86
def test_calls_in_loops_are_shared_if_they_are_large(eight):
    native = eight(record_thread())
    stacks, modes = np.zeros(64, "i8"), np.zeros(64, "i4")
    for _ in range(100):
        native.call("record_thread", (stacks, modes), 64, sequence.SHARED_FROM - 1)
        assert np.ptp(stacks) < 1 << 16
    for _ in range(1000):
        native.call("record_thread", (stacks, modes), 64, sequence.WAKES_FROM)
        if np.ptp(stacks) > 1 << 16:
            return
    pytest.fail("no worker took part")


@on_x86
def test_thread_count_follows_the_work_of_a_call(eight):
    native = eight(record_thread())
    stacks, modes = np.zeros(64, "i8"), np.zeros(64, "i4")
    run = native([("record_thread", (stacks, modes), 64, native.number(0))])
    for _ in range(100):
        run(sequence.SHARED_FROM - 1)
        assert np.ptp(stacks) < 1 << 16
    for _ in range(1000):
        run(sequence.WAKES_FROM)
        if np.ptp(stacks) > 1 << 16:
            return
    pytest.fail("no worker took part")


def test_the_mode_of_the_caller_is_restored(eight):
    native = eight(double())
    x = np.ones((100, 9), "f4")
    native([("double", (x, np.empty_like(x), 9), 100)])()
    tiny = np.array([np.finfo("f4").tiny], "f4")
    assert tiny[0] * np.float32(0.5) > 0


def test_fewer_threads_while_others_call(eight):
    """With as many callers as threads, nothing is shared."""
    native = eight(double())
    x = np.ones((100, 9), "f4")
    run = native([("double", (x, np.empty_like(x), 9), 100)])
    run()
    before = pool()._word(0).value
    pool()._word(128).value += 7  # seven other callers
    run()
    pool()._word(128).value -= 7
    assert pool()._word(0).value == before
    run()
    assert pool()._word(0).value == before + 1


def test_a_costly_stall_stops_sharing_for_a_while(eight):
    native = eight(double())
    x = np.ones((100, 9), "f4")
    run = native([("double", (x, np.empty_like(x), 9), 100)])
    run()
    before = pool()._word(0).value
    pool()._word(152).value = native._executor.clock() + (1 << 40)
    run()
    assert pool()._word(0).value == before
    pool()._word(152).value = 0
    run()
    assert pool()._word(0).value == before + 1


@on_x86
def test_waiting_for_a_worker_counts_as_a_stall(eight):
    """Unit 1 takes ten times as long as unit 0, so the caller waits for the worker that has it."""
    native = eight(pauses(), count=2)
    run = native([("pauses", (np.array([10_000, 100_000]),), 2)])
    for offset in (MOST_EARNED, EARNED, 152):
        pool()._word(offset).value = 0
    for _ in range(1000):
        run()
        if pool()._word(152).value > native._executor.clock():
            return
    pytest.fail("no stall was noticed")


def script(text, **names):
    """Run a script in a new process; returns what it prints."""
    start = (
        "import os, sys, threading, time\nimport numpy as np\n"
        "from runtime.native import sequence, threads\n"
        "from runtime.native.sequence import NativeCode\n"
        "from runtime.native.threads import available, pool\n"
        "from tests.runtime.native.kernels import double\n"
        "kernels = {'double': double().text()}\n"
        "x = np.ones((500, 200), 'f4'); y = np.zeros_like(x)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in LIMITS} | names
    return subprocess.check_output(
        [sys.executable, "-c", start + text], cwd=ROOT, text=True, timeout=60, env=environment
    ).split()


RUN = """
sequence.available = threads.available = lambda: 4
native = NativeCode(kernels)
run = native([('double', (x, y, 200), 500)])
for _ in range(10):
    run()
assert (y == 2).all()
"""


def test_a_child_of_a_fork_starts_its_own_workers():
    text = """
print(pool().workers, flush=True)
child = os.fork()
before = pool().workers
y[:] = 0
run()
assert (y == 2).all()
y[:] = 0
run()
assert (y == 2).all()
print(before, pool().workers, flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    shown = script(RUN + text)
    assert shown[0] == "3"
    assert sorted([shown[1:3], shown[3:5]]) == [["0", "3"], ["3", "3"]]


def test_exit_waits_for_nothing():
    assert script(RUN + "print(threading.active_count())") == ["4"]
    text = """
def forever():
    while True:
        run()
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.05)
print('end')
"""
    assert script(RUN + text) == ["end"]


def test_idle_workers_use_no_time():
    text = (
        "time.sleep(0.05); a = time.process_time(); time.sleep(1); print(time.process_time() - a)"
    )
    assert float(script(RUN + text)[0]) < 0.1


def test_workers_nap_where_there_is_no_futex():
    text = RUN.replace("native =", "threads._FUTEX = {}\nnative =") + (
        "time.sleep(0.01)\ny[:] = 0\nrun()\nassert (y == 2).all()\nprint(pool().workers)"
    )
    assert script(text) == ["3"]


def test_one_cpu_has_no_workers():
    text = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
native = NativeCode(kernels)
run = native([('double', (x, y, 200), 500)])
run()
assert (y == 2).all()
print(native.threads, pool().workers, threading.active_count())
"""
    assert script(text) == ["1", "0", "1"]


def test_no_more_threads_are_started_than_the_system_allows():
    text = """
def refuse(*arguments, started=threads._started):
    if arguments[2] > 1:
        raise RuntimeError("can't start new thread")
    return started(*arguments)
threads._started = refuse
"""
    assert script(text + RUN + "print(pool().workers)") == ["1"]
    assert script(text.replace("> 1", "> 0") + RUN + "print(pool().workers)") == ["0"]


@pytest.mark.parametrize("name", LIMITS)
def test_variables_limit_the_threads(name, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    monkeypatch.setattr(threads, "_QUOTA", ROOT / "missing")
    assert available({}) == 16
    assert available({name: "3"}) == 3
    assert available({name: "99"}) == 16
    assert available({name: ""}) == 16
    assert available({"OMP_NUM_THREADS": "6,2"}) == 6
    assert available({"CPU_NUM": "4", "OMP_NUM_THREADS": "2"}) == 4
    for wrong in ("0", "many", "-1"):
        with pytest.raises(CompileError, match=f"{name} is '{wrong}', expected"):
            available({name: wrong})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max 100000", 16), ("400000 100000", 4), ("150000 100000", 1), ("50000 100000", 1), ("", 16)],
)
def test_a_quota_limits_the_threads(text, expected, monkeypatch, tmp_path):
    file = tmp_path / "cpu.max"
    file.write_text(text + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    monkeypatch.setattr(threads, "_QUOTA", file)
    assert available({}) == expected


def test_workers_leave_the_cpu_of_the_caller():
    """A worker that finds itself on the caller's CPU moves, and keeps its affinity."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    text = RUN + (
        "def kept():\n"
        "    found = {tuple(sorted(os.sched_getaffinity(t.native_id))) for t in pool()._threads}\n"
        "    return found == {tuple(sorted(os.sched_getaffinity(0)))}\n"
        "until = time.monotonic() + 10\n"
        "while not kept() and time.monotonic() < until:  # one may be moving just now\n"
        "    time.sleep(0.01)\n"
        "print(kept())"
    )
    assert script(text) == ["True"]


@on_x86
def test_sleeping_workers_wake_again(eight):
    native = eight(record_thread())
    stacks, modes = np.zeros(64, "i8"), np.zeros(64, "i4")
    run = native([("record_thread", (stacks, modes), 64)])
    for _ in range(3):
        time.sleep(0.01)
        for _ in range(1000):
            run()
            if np.ptp(stacks) > 1 << 16:
                break
        else:
            pytest.fail("no worker woke")
