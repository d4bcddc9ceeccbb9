"""Role makers: who a process is, what is wrong with its variables, and collectives for real."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fleet.roles.base import Role, RoleMakerBase
from fleet.roles.cloud import PaddleCloudRoleMaker
from fleet.roles.user_defined import UserDefinedCollectiveRoleMaker, UserDefinedRoleMaker
from tests.fleet.programs import set_all
from tests.support.ports import free_endpoint

ROOT = Path(__file__).parents[2]
SERVERS = "127.0.0.1:6170,127.0.0.1:6171"
TRAINER = {
    "PADDLE_PSERVERS_IP_PORT_LIST": SERVERS, "PADDLE_TRAINERS_NUM": "2",
    "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "1",
}  # fmt: skip
SERVER = {**TRAINER, "TRAINING_ROLE": "PSERVER", "POD_IP": "127.0.0.1", "PADDLE_PORT": "6171"}
COLLECTIVE = {"PADDLE_TRAINER_ENDPOINTS": SERVERS, "PADDLE_TRAINER_ID": "1"}
pytestmark = pytest.mark.usefixtures("no_role")


# ---- roles ----


def test_a_trainer_of_parameter_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, TRAINER)
    role = PaddleCloudRoleMaker()
    assert role.is_worker() and not role.is_server() and not role.is_first_worker()
    assert (role.worker_index(), role.worker_num(), role.server_num()) == (1, 2, 2)
    assert role.get_pserver_endpoints() == SERVERS.split(",")
    assert role.get_trainer_endpoints() == []


def test_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SERVER)
    role = PaddleCloudRoleMaker()
    role.generate_role()
    role.generate_role()
    assert role.is_server() and not role.is_worker()
    assert role.server_index() == 1
    assert role.to_string() == (
        "role: 2, current_id: 1, worker_endpoints: [], "
        "server_endpoints: ['127.0.0.1:6170', '127.0.0.1:6171']"
    )


def test_a_trainer_of_collective_training_is_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, COLLECTIVE)
    role = PaddleCloudRoleMaker(is_collective=True)
    assert role.is_worker() and not role.is_server() and role.worker_index() == 1
    assert role.get_trainer_endpoints() == SERVERS.split(",") and role.worker_num() == 2
    monkeypatch.delenv("PADDLE_TRAINER_ID")
    assert PaddleCloudRoleMaker(True).is_first_worker()


def test_roles_by_hand() -> None:
    worker = UserDefinedRoleMaker(1, Role.WORKER, 2, ["a:1"])
    assert worker.is_worker() and worker.worker_num() == 2 and worker.worker_index() == 1
    server = UserDefinedRoleMaker(0, Role.SERVER, 2, ["a:1"])
    assert server.is_server() and server.server_index() == 0
    collective = UserDefinedCollectiveRoleMaker(0, ["a:1", "b:1"])
    assert collective.is_first_worker() and not collective.is_server()


def test_single_worker_needs_no_rendezvous() -> None:
    """Servers take no part in it, so no variable has to say where."""
    worker, total = UserDefinedRoleMaker(0, Role.WORKER, 1, ["a:1"]), [0.0, 0.0]
    worker.barrier_worker()
    worker.all_reduce_worker([1.0, 2.0], total)
    assert total == [1.0, 2.0]


def test_workers_by_hand_that_know_no_place_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_GLOO_ENDPOINT", raising=False)
    worker = UserDefinedRoleMaker(1, Role.WORKER, 2, ["a:1"])
    for barrier in (worker.barrier_worker, worker.barrier_all):
        with pytest.warns(UserWarning, match=f"{barrier.__name__} waits for nobody: set PADDLE_"):
            barrier()
    with pytest.raises(ValueError, match="PADDLE_GLOO_ENDPOINT is not set"):
        worker.all_reduce_worker([1.0], [0.0])


def test_the_base_has_no_role() -> None:
    base = RoleMakerBase()
    for question in (base.is_worker, base.is_server, base.worker_num, base.worker_index):
        with pytest.raises(NotImplementedError, match="use PaddleCloudRoleMaker"):
            question()
    assert base.get_trainer_endpoints() == base.get_pserver_endpoints() == []
    with pytest.warns(UserWarning, match="RoleMakerBase does not have"):
        assert base.all_gather(1) == []
        base.all_reduce_worker([1], [0])
        base.barrier_worker()
        base.barrier_all()


# ---- what is wrong ----


@pytest.mark.parametrize(
    ("good", "name", "bad"),
    [
        *((TRAINER, name, "") for name in TRAINER),
        *((SERVER, name, "") for name in ("POD_IP", "PADDLE_PORT")),
        (TRAINER, "PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1"),
        (TRAINER, "PADDLE_PSERVERS_IP_PORT_LIST", "a:1,a:1"),
        (TRAINER, "PADDLE_TRAINERS_NUM", "0"),
        (TRAINER, "PADDLE_TRAINERS_NUM", "two"),
        (TRAINER, "TRAINING_ROLE", "WORKER"),
        (TRAINER, "PADDLE_TRAINER_ID", "2"),
        (TRAINER, "PADDLE_TRAINER_ID", "-1"),
        (SERVER, "PADDLE_PORT", "x"),
        (SERVER, "POD_IP", "10.0.0.9"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, good: dict[str, str], name: str, bad: str
) -> None:
    set_all(monkeypatch, good | {name: bad})
    with pytest.raises(ValueError, match=rf"{name} is .*expected .*usually set by `fluid"):
        PaddleCloudRoleMaker().is_worker()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("PADDLE_TRAINER_ENDPOINTS", ""),
        ("PADDLE_TRAINER_ENDPOINTS", "a"),
        ("PADDLE_TRAINER_ID", "2"),
        ("PADDLE_TRAINING_ROLE", "PSERVER"),
        ("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:6170"),
    ],
)
def test_a_wrong_collective_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, bad: str
) -> None:
    set_all(monkeypatch, COLLECTIVE | {name: bad})
    with pytest.raises(ValueError, match=rf"{name} is .*usually set by `fluid launch`"):
        PaddleCloudRoleMaker(is_collective=True).is_worker()


@pytest.mark.parametrize("missing", [*itertools.combinations(TRAINER, 2)])
def test_two_missing_variables_name_one(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    set_all(monkeypatch, {name: value for name, value in TRAINER.items() if name not in missing})
    with pytest.raises(ValueError, match=f"({'|'.join(missing)}) is not set"):
        PaddleCloudRoleMaker().worker_num()


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((0, Role.WORKER, 1, None), TypeError, "server_endpoints must be a list"),
        ((0, Role.WORKER, 1, []), ValueError, "server_endpoints is empty"),
        ((0, Role.WORKER, 1, [1]), TypeError, "must hold strings"),
        ((0, Role.WORKER, 1, ["a:1", "a:1"]), ValueError, "has an endpoint twice"),
        ((0, 3, 1, ["a:1"]), TypeError, "role must be Role.WORKER or Role.SERVER"),
        (("0", Role.WORKER, 1, ["a:1"]), TypeError, "current_id must be an int"),
        ((-1, Role.WORKER, 1, ["a:1"]), ValueError, "current_id is -1"),
        ((1, Role.SERVER, 1, ["a:1"]), ValueError, "current_id is 1, .* less than 1"),
        ((1, Role.WORKER, 1, ["a:1"]), ValueError, "current_id is 1"),
        ((0, Role.WORKER, 0, ["a:1"]), ValueError, "worker_num is 0"),
        ((0, Role.WORKER, "1", ["a:1"]), TypeError, "worker_num must be an int"),
    ],
)
def test_wrong_arguments(arguments: tuple[object, ...], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        UserDefinedRoleMaker(*arguments)  # type: ignore[arg-type]


# ---- collectives ----

PROCESS = """
import json, os, sys, numpy as np
from fleet.roles.base import Role
from fleet.roles.user_defined import UserDefinedRoleMaker
rank, workers, servers = map(int, sys.argv[1:])
is_worker = rank < workers
endpoints = [f"127.0.0.1:{1 + n}" for n in range(max(servers, 1))]
maker = UserDefinedRoleMaker(
    rank if is_worker else rank - workers, Role.WORKER if is_worker else Role.SERVER, workers, endpoints
)
if not servers:
    maker._server_endpoints = []
found = {"gathered": maker.all_gather(rank + 0.5)}
maker.barrier_all()
if is_worker:
    given = np.arange(5) * (-1) ** rank + rank
    for mode in ("sum", "min", "max"):
        output = [0] * 5
        maker.all_reduce_worker(given.tolist(), output, mode)
        found[mode] = output
    array = np.zeros(5, "float32")
    maker.all_reduce_worker(given.astype("float32"), array)
    found["float32"] = array.tolist()
    maker.barrier_worker()
maker.barrier_all()
maker.finalize()
print(json.dumps(found))
"""


@pytest.mark.parametrize(("workers", "servers"), [(1, 0), (2, 1)])
def test_role_maker_collectives_match_numpy(workers: int, servers: int) -> None:
    endpoint = free_endpoint()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PADDLE_GLOO_ENDPOINT": endpoint}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, *map(str, (rank, workers, servers))],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(workers + servers)
    ]  # fmt: skip
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert all(
        answer["gathered"] == [r + 0.5 for r in range(workers + servers)] for answer in answers
    )
    inputs = np.stack([np.arange(5) * (-1) ** rank + rank for rank in range(workers)])
    for found in answers[:workers]:
        assert found["sum"] == found["float32"] == inputs.sum(0).tolist()
        assert (found["min"], found["max"]) == (inputs.min(0).tolist(), inputs.max(0).tolist())


def test_arguments_of_collectives() -> None:
    maker = UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:1"])
    with pytest.raises(ValueError, match="unknown mode 'mean'"):
        maker.all_reduce_worker([1], [0], "mean")
    with pytest.raises(ValueError, match="must be one-dimensional"):
        maker.all_reduce_worker([[1]], [0])
    with pytest.raises(ValueError, match="output has 2 elements, but input has 1"):
        maker.all_reduce_worker([1], [0, 0])
    with pytest.raises(TypeError, match="takes an int or a float"):
        maker.all_gather("1")
    server = UserDefinedRoleMaker(0, Role.SERVER, 1, ["127.0.0.1:1"])
    with pytest.warns(UserWarning, match="nothing on a server"):
        server.all_reduce_worker([1], [0])
