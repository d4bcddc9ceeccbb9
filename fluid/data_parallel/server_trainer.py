"""A trainer of parameter servers that a script runs on several CPU devices.

Its process alone is connected to the servers, so no worker process runs a share. With asynchronous
servers the shares of a batch are steps one after the other, each of which sends its gradients, as
the threads of release 1.8.5 do; synchronous servers get the gradients of the whole batch, which
are the mean of those of the devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluid.data_parallel.device_feeds import device_feeds
from fluid.data_parallel.devices import Devices
from fluid.data_parallel.runner import Core, DataParallel
from fluid.data_parallel.split_feeds import Feed, lod_names, split_rows
from fluid.data_parallel.strategies import BuildStrategy, ExecutionStrategy
from fluid.distributed.job import ParameterServerJob
from fluid.distributed.sharding import DistributedMode
from fluid.framework import Program
from fluid.running.fetched_values import Value
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["ServerTrainer"]


class ServerTrainer:
    """Runs a trainer's program on the shares of `places` devices of this process.

    `devices` has one place.
    """

    def __init__(
        self,
        program: Program,
        build_strategy: BuildStrategy,
        exec_strategy: ExecutionStrategy,
        devices: Devices,
        places: int,
    ) -> None:
        self.devices = devices
        self._program, self._places = program, places
        self._iterations = exec_strategy.num_iteration_per_run
        self._alone = DataParallel(program, build_strategy, exec_strategy, devices)

    def run(
        self, runner: Core, feed: object, fetch: tuple[str, ...], strict: bool = False
    ) -> list[list[Value]]:
        """Run the program on each share, or on the whole batch; the fetches of each device.

        Raises the errors of splitting feeds, compiling and the step.
        """
        results: list[list[Value]] = []
        for _ in range(self._iterations):
            shares = device_feeds(self._program, feed, self._places, self.devices.kind, not strict)
            results = self._step(runner, shares, fetch)
        return results

    def _step(
        self, runner: Core, shares: Sequence[Feed], fetch: tuple[str, ...]
    ) -> list[list[Value]]:
        if not self._is_synchronous():
            return [self._run(runner, share, fetch) for share in shares]
        rows = sum(map(_row_count, shares))
        values = self._run(runner, self._joined(shares), fetch)
        columns = [_on_devices(value, rows, len(shares)) for value in values]
        return [list(device) for device in zip(*columns, strict=True)] or [[] for _ in shares]

    def local_program(self, fetch: tuple[str, ...] = ()) -> Program:
        """The program of this process."""
        return self._alone.local_program(fetch)

    def drop_temporaries(self) -> None:
        """Free the memory of temporaries; the next run allocates it again."""
        self._alone.drop_temporaries()

    def _run(self, runner: Core, share: Feed, fetch: tuple[str, ...]) -> list[Value]:
        return self._alone.run_shares(runner, [share], fetch)[0]

    def _joined(self, shares: Sequence[Feed]) -> Feed:
        """The batch whose shares these are; a persistable variable has the value of the first."""
        whole: Feed = {}
        for name in _values(shares[0]):
            if self._program.global_block().vars[name].persistable:
                whole[name] = shares[0][name]
                continue
            whole[name] = np.concatenate([share[name] for share in shares])
            for level in lod_names(name, shares[0]):
                lengths = np.concatenate([np.diff(share[level]) for share in shares])
                whole[level] = np.concatenate([[0], np.cumsum(lengths)])
        return whole

    def _is_synchronous(self) -> bool:
        job = self._program.job
        return isinstance(job, ParameterServerJob) and job.plan.mode is DistributedMode.SYNC


def _row_count(share: Feed) -> int:
    """The rows of a share, or its sequences; 0 for an empty one."""
    name = next((name for name in share if name in _values(share)), None)
    if name is None:
        return 0
    levels = lod_names(name, share)
    return len(share[levels[0]]) - 1 if levels else len(share[name])


def _values(share: Feed) -> list[str]:
    levels = {level for name in share for level in lod_names(name, share)}
    return [name for name in share if name not in levels]


def _on_devices(value: Value, rows: int, devices: int) -> list[Value]:
    """The part of a fetch of each device; what has no row for each sample is the same on all."""
    if isinstance(value, list):
        return [value] * devices
    array, lod = (value.array, value.lod()) if isinstance(value, LoDTensor) else (value, [])
    if array is None or (len(lod[0]) - 1 if lod else len(np.atleast_1d(array))) != rows:
        return [value] * devices
    return list(split_rows(array, lod, devices))
