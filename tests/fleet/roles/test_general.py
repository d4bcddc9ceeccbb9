"""`GeneralRoleMaker` and `MPISymetricRoleMaker`: roles, errors, collectives of real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.roles.general import GeneralRoleMaker
from fleet.roles.mpi import MPISymetricRoleMaker, rank_from_environment
from tests.fleet import programs
from tests.fleet.programs import set_all
from tests.support.ports import free_endpoints

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("role_process.py")
WORKER = {
    "PADDLE_PSERVERS_IP_PORT_LIST": "a:1,b:1", "PADDLE_TRAINER_ENDPOINTS": "a:2,b:2",
    "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "1",
}  # fmt: skip
SERVER = {**WORKER, "TRAINING_ROLE": "PSERVER", "PADDLE_PSERVER_ID": "1"}
pytestmark = pytest.mark.usefixtures("no_role")


def test_a_worker_and_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, WORKER)
    worker = GeneralRoleMaker()
    assert worker.is_worker() and (worker.worker_index(), worker.worker_num()) == (1, 2)
    assert worker.get_local_endpoint() == "b:2" and (worker._get_rank(), worker._get_size()) == (
        1,
        4,
    )
    set_all(monkeypatch, SERVER)
    server = GeneralRoleMaker()
    assert server.is_server() and server.get_local_endpoint() == "b:1"
    assert (server._get_rank(), server._server_num(), server._worker_num()) == (3, 2, 2)
    monkeypatch.delenv("PADDLE_PSERVER_ID")
    set_all(monkeypatch, {"POD_IP": "a", "PADDLE_PORT": "1"})
    assert GeneralRoleMaker().server_index() == 0


@pytest.mark.parametrize(
    ("good", "name", "bad"),
    [
        *((WORKER, name, "") for name in WORKER),
        (WORKER, "PADDLE_TRAINER_ID", "2"),
        (WORKER, "TRAINING_ROLE", "MASTER"),
        (SERVER, "PADDLE_PSERVER_ID", "2"),
        (SERVER, "PADDLE_PSERVER_ID", "x"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, good: dict[str, str], name: str, bad: str
) -> None:
    set_all(monkeypatch, good | {name: bad})
    with pytest.raises(ValueError, match=rf"{name} is .*expected .*usually set by"):
        GeneralRoleMaker().is_worker()


def test_a_server_at_no_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {**SERVER, "POD_IP": "c", "PADDLE_PORT": "1"})
    monkeypatch.delenv("PADDLE_PSERVER_ID")
    with pytest.raises(ValueError, match="POD_IP is 'c:1' with PADDLE_PORT, which is not among"):
        GeneralRoleMaker().is_server()


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="http_ip_port must be host:port"):
        GeneralRoleMaker(http_ip_port="here")
    with pytest.raises(ValueError, match="must be positive"):
        GeneralRoleMaker(init_timeout_seconds=0)
    with pytest.raises(TypeError, match="nothing"):
        GeneralRoleMaker(nothing=1)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PMI_RANK": "0"}, "PMI_SIZE is not set"),
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID is 'x'.*usually set by srun"),
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, "PMI_RANK is 2, but PMI_SIZE is 2"),
    ],
)
def test_launchers_variables_are_checked(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_from_environment(environ)


def test_a_process_of_no_mpi_launcher_has_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {})
    with pytest.raises(ImportError, match="none of OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID"):
        MPISymetricRoleMaker().is_worker()


def test_mpi_needs_pairs_and_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {"PMI_RANK": "0", "PMI_SIZE": "3"})
    with pytest.raises(ValueError, match="3 processes, expected an even number"):
        MPISymetricRoleMaker().is_worker()
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(ValueError, match="PADDLE_GLOO_ENDPOINT is not set"):
        MPISymetricRoleMaker().is_worker()


def run_all(maker: str, marks: Path, environments: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What each process of a job prints."""
    clean = {
        name: value for name, value in os.environ.items() if name not in programs.ROLE_VARIABLES
    }
    clean |= {"PYTHONPATH": str(ROOT), "MARKS": str(marks), "FLAGS_rpc_deadline": "60000"}
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), maker], env=clean | environment, stdout=subprocess.PIPE
        )
        for environment in environments
    ]
    results = [process.communicate(timeout=100)[0] for process in started]
    assert all(process.returncode == 0 for process in started)
    return [json.loads(each) for each in results]


def test_mpi_processes_rendezvous(tmp_path: Path) -> None:
    [place] = free_endpoints(1)
    ranks = [{"OMPI_COMM_WORLD_RANK": str(n), "OMPI_COMM_WORLD_SIZE": "2"} for n in range(2)]
    server, worker = run_all(
        "mpi", tmp_path, [{**rank, "PADDLE_GLOO_ENDPOINT": place} for rank in ranks]
    )
    assert (server["worker"], worker["worker"]) == (False, True)
    assert server["index"] == worker["index"] == 0 and worker["size"] == 2
    assert server["all"] == worker["all"] == [0, 1]
    assert worker["servers"] == server["servers"] != worker["trainers"]
    assert worker["summed"] == [1.0, 0.0] and server["summed"] == [0.0, 0.0]


def test_workers_and_servers_rendezvous(tmp_path: Path) -> None:
    servers, trainers = free_endpoints(2), free_endpoints(2)
    common = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(trainers),
    }
    roles = [{"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(n)} for n in range(2)]
    roles += [{"TRAINING_ROLE": "PSERVER", "PADDLE_PSERVER_ID": str(n)} for n in range(2)]
    result = run_all("general", tmp_path, [common | role for role in roles])
    assert [each["rank"] for each in result] == [0, 1, 2, 3]
    assert all(each["all"] == [0, 1, 2, 3] and each["met"] for each in result)
    assert [each["workers"] for each in result] == [[0, 1], [0, 1], None, None]
    assert [each["summed"] for each in result] == [[2.0, 1.0]] * 2 + [[0.0, 0.0]] * 2
