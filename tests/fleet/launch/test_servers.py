"""`fluid launch_ps`: flags, variables, logs, the end of a job; training equals one process."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fleet.launch.server_arguments import ServerLaunch, add_server_arguments, server_job
from tests.fleet import programs
from tests.support.ports import free_endpoints, free_ports

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(__file__).parents[1] / "scripts"


def parsed(*flags: str) -> ServerLaunch:
    command = argparse.ArgumentParser()
    add_server_arguments(command)
    return server_job(command.parse_args([*flags, __file__, "--epochs", "5"]))


def launched(folder: Path, script: str, *arguments: str, module: str = "fleet.launch.servers",
             flags: tuple[str, ...] = ()) -> Any:  # fmt: skip
    servers = ",".join(free_endpoints(2))
    command = [sys.executable, "-m", module, *flags, "--worker_num", "2", "--endpoints", servers]
    command += ["--log_dir", str(folder / "logs"), str(SCRIPTS / script), *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_deadline": "60000"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=150)


def test_flags_of_release_1_8() -> None:
    job = parsed("--worker_num", "3", "--server_num", "2", "--start_port", "7000")
    assert job.endpoints == ("127.0.0.1:7000", "127.0.0.1:7001") and job.workers == 3
    assert job.arguments == ("--epochs", "5")
    assert parsed().endpoints == ("127.0.0.1:6170", "127.0.0.1:6171")
    assert parsed().log_dir == Path("logs")
    assert parsed("--endpoints", "a:1, b:2").endpoints == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--worker_num", "0"], "--worker_num is 0, expected 1 or more"),
        (["--server_num", "0"], "--start_port 6170 and --server_num 0"),
        (["--start_port", "65535"], "expected ports to 65535"),
        (["--endpoints", "a:1,a:1"], "expected different host:port"),
        (["--endpoints", "a"], "expected different host:port"),
        (["--cluster_node_ips", "10.0.0.1,10.0.0.2"], "--node_ip is '127.0.0.1', expected one of"),
        (["--servers", "a:1"], "--workers is '', expected different host:port"),
        (["--servers", "a:1", "--workers", "a:1"], "endpoint is that of a server and of a worker"),
        (
            ["--servers", "a:1", "--workers", "b:2"],
            "--node_ip is '127.0.0.1', expected one of a, b",
        ),
    ],
)
def test_wrong_flags_are_named(flags: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(*flags)


def test_a_script_must_be_there() -> None:
    command = argparse.ArgumentParser()
    add_server_arguments(command)
    with pytest.raises(ValueError, match=r"absent\.py is no file"):
        server_job(command.parse_args(["absent.py"]))


def test_each_process_has_the_variables_of_its_role() -> None:
    job = ServerLaunch(
        Path("t.py"), endpoints=("a:1", "b:2"), workers=2, trainers=("a:4", "a:5"), meeting="a:3"
    )
    result = job.variables()
    assert list(job.names.values()) == ["serverlog.0", "serverlog.1", "workerlog.0", "workerlog.1"]
    for each in result.values():
        assert each["PADDLE_PSERVERS_IP_PORT_LIST"] == "a:1,b:2"
        assert (each["PADDLE_TRAINERS_NUM"], each["PADDLE_GLOO_ENDPOINT"]) == ("2", "a:3")
    assert (result[1]["TRAINING_ROLE"], result[1]["POD_IP"], result[1]["PADDLE_PORT"]) == (
        "PSERVER", "b", "2",
    )  # fmt: skip
    assert (result[3]["TRAINING_ROLE"], result[3]["PADDLE_TRAINER_ID"]) == ("TRAINER", "1")
    assert "PADDLE_TRAINER_ID" not in result[0] and "POD_IP" not in result[2]
    assert result[0]["PADDLE_TRAINER_ENDPOINTS"] == "a:4,a:5"
    assert result[3]["PADDLE_CURRENT_ENDPOINT"] == "a:5"


def test_each_machine_starts_the_processes_with_its_address() -> None:
    cluster = ("--cluster_node_ips", "a,b", "--start_port", "7000", "--worker_num", "1")
    job = parsed(*cluster, "--node_ip", "b")
    assert job.endpoints == ("a:7000", "a:7001", "b:7000", "b:7001")
    assert job.trainers == ("a:7002", "b:7002") and job.workers == 2
    assert list(job.names.values()) == ["serverlog.2", "serverlog.3", "workerlog.1"]
    assert job.meeting == "a:7002"
    lists = ("--servers", "a:1,b:1", "--workers", "b:2,b:3,a:2")
    job = parsed(*lists, "--node_ip", "a")
    assert list(job.names.values()) == ["serverlog.0", "workerlog.2"]
    result = job.variables()
    assert (result[0]["PADDLE_PSERVER_ID"], result[1]["PADDLE_TRAINER_ID"]) == ("0", "2")
    assert result[1]["PADDLE_TRAINERS_NUM"] == "3" and job.meeting == "b:2"


def losses_of_one_process(optimizer: Any = None) -> Any:
    with programs.fresh():
        loss = programs.mlp()
        (optimizer or fluid.optimizer.Adagrad(0.01)).minimize(loss)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        results = [executor.run(feed=feed, fetch_list=[loss])[0] for feed in programs.batches(4)]
    return np.ravel(results)


@pytest.mark.ps
def test_two_workers_and_two_servers_train_as_one_process(tmp_path: Path) -> None:
    done = launched(
        tmp_path,
        "train.py",
        str(tmp_path),
        "sync",
        module="fleet.openks.launcher",
        flags=("--mode", "cpu"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.endswith("all parameter server are killed\n")
    logs = {path.name for path in (tmp_path / "logs").glob("*log.*")}
    assert logs >= {"serverlog.0", "serverlog.1", "workerlog.0", "workerlog.1"}
    for name in ("fc_0.w_0", "fc_2.b_0"):
        saved = [(tmp_path / folder / name).read_bytes() for folder in ("state", "model")]
        assert saved[0] == saved[1]
    assert (tmp_path / "model/__model__").is_file()
    alone = losses_of_one_process()
    result = json.loads((tmp_path / "losses.json").read_text())
    np.testing.assert_allclose(result, alone, rtol=1e-4)


@pytest.mark.ps
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "half_async", "geo"])
def test_asynchronous_workers_approach_one_process(tmp_path: Path, mode: str) -> None:
    """Small steps move little, so that a worker which comes late moves the losses by less than 5 %."""
    done = launched(tmp_path, "train.py", str(tmp_path), mode)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = [(tmp_path / folder / "fc_2.b_0").read_bytes() for folder in ("state", "model")]
    assert saved[0] == saved[1]
    result = json.loads((tmp_path / "losses.json").read_text())
    np.testing.assert_allclose(result, losses_of_one_process(fluid.optimizer.SGD(0.01)), rtol=0.05)


@pytest.mark.ps
@pytest.mark.slow
def test_two_launchers_train_as_one_process(tmp_path: Path) -> None:
    ports, hosts = free_ports(4), ("127.0.0.1", "127.0.0.2")
    ends = [f"{host}:{port}" for host, port in zip(hosts * 2, ports, strict=True)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "FLAGS_rpc_deadline": "60000"}
    command = [sys.executable, "-m", "fleet.launch.servers", "--servers", ",".join(ends[:2])]
    command += ["--workers", ",".join(ends[2:]), "--log_dir", str(tmp_path / "logs")]
    script = [str(SCRIPTS / "train.py"), str(tmp_path), "sync"]
    started = [
        subprocess.Popen([*command, "--node_ip", host, *script], env=environ) for host in hosts
    ]
    try:
        codes = [process.wait(150) for process in started]
    finally:
        for process in started:
            process.kill()
    logs = {path.name for path in (tmp_path / "logs").glob("*log.*")}
    assert codes == [0, 0] and logs >= {"serverlog.1", "workerlog.0", "workerlog.1"}
    result = json.loads((tmp_path / "losses.json").read_text())
    np.testing.assert_allclose(result, losses_of_one_process(), rtol=1e-4)


def test_a_worker_that_fails_ends_all(tmp_path: Path) -> None:
    done = launched(tmp_path, "fail.py")
    assert done.returncode == 1
    assert "worker 1 (pid" in done.stderr and "failed first, with exit code 1" in done.stderr
    assert done.stderr.rstrip().endswith("RuntimeError: worker 1 has had enough")
