"""A job with parameter servers in one process: threads run the programs, dicts are the wire."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fluid
from fluid.transpiler.distribute.blocks import block_program

SERVERS = "127.0.0.1:6170,127.0.0.1:6171"
SECONDS = 60.0
"""How long a thread waits for the others before the test fails."""

Build = Callable[[], Any]
"""Appends a network to the default programs and returns its loss."""


def built(build: Build, seed: int = 7) -> tuple[Any, Any, Any]:
    """Return main program, startup program and loss of a network, always with the same names."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build()
    return main, startup, loss


def transpiled(
    build: Build, trainer: int = 0, trainers: int = 2, config: Any = None, **arguments: Any
) -> tuple[fluid.DistributeTranspiler, Any, Any, Any]:
    """Return a transpiler after `transpile`, with the programs and the loss that it rewrote."""
    main, startup, loss = built(build)
    transpiler = fluid.DistributeTranspiler(config=config)
    known = {"pservers": SERVERS, "trainers": trainers, "startup_program": startup}
    transpiler.transpile(trainer, program=main, **known | arguments)
    return transpiler, main, startup, loss


class Server:
    """One server: a scope, and the blocks of its program as programs."""

    def __init__(self, main: Any, startup: Any, job: Job) -> None:
        self.scope, self.executor, self.job = fluid.Scope(), fluid.Executor(), job
        self.executor.run(startup, scope=self.scope)
        self.op = main.global_block().ops[-1]
        blocks = [int(index) for index in self.op.attr("optimize_blocks")]
        self.programs = [block_program(main, index) for index in blocks]
        for program in self.programs:
            program.parameter_server = self
        self.received: dict[str, Any] = {}

    def update(self) -> None:
        """Run every block on what was received."""
        for program in self.programs:
            if program.global_block().ops:
                names = {n for op in program.global_block().ops for n in op.reads()}
                feed = {name: v for name, v in self.received.items() if name in names}
                self.executor.run(program, feed=feed, scope=self.scope)

    def sum_over_servers(self, name: str, array: Any) -> Any:
        """Return the sum of an array over the servers of the job."""
        return self.job.total(array)

    def value(self, name: str) -> Any:
        """Return the value of a variable."""
        return np.array(self.scope.find_var(name).get_tensor())


class Job:
    """Servers, and what trainers call to reach them."""

    def __init__(self, build: Build, trainers: int = 2, config: Any = None) -> None:
        self.build, self.trainers, self.config = build, trainers, config
        transpiler = transpiled(build, 0, trainers, config)[0]
        self.plan = transpiler.sharding_plan
        self.parts: list[Any] = []
        self.added = threading.Barrier(len(self.plan.endpoints), timeout=SECONDS)
        self.servers = {
            endpoint: Server(*transpiler.get_pserver_programs(endpoint), self)
            for endpoint in self.plan.endpoints
        }
        self.barrier = threading.Barrier(trainers, action=self.update, timeout=SECONDS)

    def total(self, array: Any) -> Any:
        """Return the sum of one array from each server."""
        self.parts.append(array.copy())
        self.added.wait()
        result = np.sum(self.parts, axis=0).astype(array.dtype)
        self.added.wait()
        self.parts.clear()
        return result

    def update(self) -> None:
        """Let all servers make a step."""
        run_together([server.update for server in self.servers.values()])

    # ---- what modules call

    def send(
        self, names: Any, endpoints: Any, arrays: Any, rows: Any, trainer: int, *_: Any
    ) -> None:
        for number, (name, endpoint, array) in enumerate(
            zip(names, endpoints, arrays, strict=True)
        ):
            assert not rows, "rows are not of this test"
            self.servers[endpoint].received[name] = np.array(arrays[number])
            assert array.size

    def send_barrier(self, endpoints: Any, trainer: int, half_async: bool) -> None:
        self.barrier.wait()

    def recv(self, names: Any, endpoints: Any, trainer: int) -> list[Any]:
        return [self.servers[e].value(n) for n, e in zip(names, endpoints, strict=True)]

    def fetch_barrier(self, endpoints: Any, trainer: int) -> None:
        pass

    # ---- training

    def train(self, batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Train on batches, an equal share of each for a trainer; the parameters of trainer 0."""
        results: list[dict[str, Any]] = [{} for _ in range(self.trainers)]

        def run(trainer: int) -> None:
            results[trainer] = self._train(trainer, batches)

        run_together([lambda t=t: run(t) for t in range(self.trainers)])
        for name, value in results[-1].items():
            np.testing.assert_array_equal(value, results[0][name])
        return results[0]

    def _train(self, trainer: int, batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
        with LOCK:
            _, main, startup, loss = transpiled(self.build, trainer, self.trainers, self.config)
        main.parameter_server = startup.parameter_server = self
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        for batch in batches:
            share = {name: np.split(v, self.trainers)[trainer] for name, v in batch.items()}
            executor.run(main, feed=share, fetch_list=[loss], scope=scope)
        return parameters(main, scope)


LOCK = threading.Lock()
"""Default programs are global: one thread builds at a time."""


def parameters(program: Any, scope: Any) -> dict[str, Any]:
    """Return the parameters of a program by name."""
    names = [param.name for param in program.all_parameters()]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def train_alone(build: Build, batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters after training on whole batches in one process."""
    main, startup, loss = built(build)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for batch in batches:
        executor.run(main, feed=batch, fetch_list=[loss], scope=scope)
    return parameters(main, scope)


def run_together(calls: Sequence[Callable[[], None]]) -> None:
    """Call functions in threads; the first error of one is raised."""
    errors: list[Exception] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread still waits"
