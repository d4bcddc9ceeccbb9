"""Machines that come and go while a job of `fluid launch` runs: two launchers on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tools.verify.support.faulted import settles

ROOT = Path(__file__).parents[3]
SECONDS = 150
SETTINGS = "last_call_timeout=2,keep_alive_interval=2,keep_alive_max_attempt=5"
SCRIPT = """\
import os, sys, time
from pathlib import Path
import numpy as np
from runtime.collective import Rings

folder, rank = Path(sys.argv[1]), int(os.environ["PADDLE_TRAINER_ID"])
endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
checkpoint, stop = folder / "checkpoint", folder / "stop"
rings = Rings()
rings.create_id("id", rank, endpoints)
rings.init_ring(0, "id", len(endpoints), rank)
done = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("rank", rank, "of", len(endpoints), "from", done, flush=True)
while True:
    step = np.array([1.0 * stop.exists(), 1.0])
    rings.all_reduce(0, "step", "sum", step)
    assert step[1] == len(endpoints)
    done += 1
    if rank == 0:
        (folder / "new").write_text(str(done))
        (folder / "new").rename(checkpoint)
    if step[0]:
        break
    time.sleep(0.05)
print("rank", rank, "of", len(endpoints), "ends at", done, flush=True)
"""


class Machine:
    """A launcher, as one on a machine of its own."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.log = folder / f"{name}.log"
        command = [
            sys.executable, "-m", "fluid", "launch", "--nnodes", "1:2", "--nproc_per_node", "1",
            "--master", f"127.0.0.1:{port}", "--node_ip", "127.0.0.1", "--max_restarts", "3",
            "--rdzv_conf", SETTINGS, str(folder / "train.py"), str(folder),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_deadline": "30000"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def starts(self) -> list[tuple[int, int, int]]:
        """Rank, world size and first step of every start of its process."""
        result = re.findall(r"rank (\d+) of (\d+) from (\d+)", self.log.read_text())
        return [(int(rank), int(world), int(step)) for rank, world, step in result]

    def has_world(self, size: int, attempt: int) -> bool:
        """Whether it runs in a world of so many, in its start of this number or a later one."""
        starts = self.starts()
        return len(starts) >= attempt and starts[-1][1] == size


@pytest.mark.slow
def test_a_machine_joins_and_is_lost(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (port,) = free_ports(1)
    first = Machine(tmp_path, "first", port)
    machines = [first]
    try:
        assert settles(lambda: first.has_world(1, 1), SECONDS), first.log.read_text()
        second = Machine(tmp_path, "second", port)
        machines.append(second)
        assert settles(lambda: second.has_world(2, 1), SECONDS), second.log.read_text()
        assert settles(lambda: first.has_world(2, 2), SECONDS), first.log.read_text()
        second.process.send_signal(signal.SIGKILL)
        assert settles(lambda: first.has_world(1, 3), SECONDS), first.log.read_text()
        (tmp_path / "stop").touch()
        assert first.process.wait(SECONDS) == 0, first.log.read_text()
    finally:
        for machine in machines:
            machine.process.kill()
            machine.process.wait()
    steps = [step for _, _, step in first.starts()]
    assert steps == sorted(steps) and steps[0] == 0 < steps[1] < steps[-1]
    assert "RankError" in first.log.read_text()
