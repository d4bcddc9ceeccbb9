"""Waits for other processes that last are reported: of ranks, of trainers and of servers."""

import pytest

from runtime import wait_notice
from runtime.collective.rendezvous import join_store
from runtime.errors import RendezvousError, WireError
from tests.runtime.ps.world import receive, send, world
from tests.support.ports import free_endpoint


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report waits after a moment."""
    monkeypatch.setattr(wait_notice, "FIRST_SECONDS", 0.05)


def test_a_rank_reports_that_rank_0_does_not_listen(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    with pytest.raises(RendezvousError):
        join_store(endpoint, 0.3, rank=2)
    first = caplog.messages[0]
    assert first == f"rank 2 waits for rank 0 at {endpoint}, where nobody listens yet: 0 s of 0.3 s"


def test_a_server_reports_the_trainers_that_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    with world(deadline=1.0) as created:
        trainer = created.trainer(0)
        send(trainer, created.endpoint, 1.0)
        with pytest.raises(WireError):
            receive(trainer, created.endpoint)
        created.errors.clear()
    assert any("waits for trainer 1: 0 s of 1 s" in line for line in caplog.messages)


@pytest.mark.parametrize("policy", ["fail", "shrink", "wait"])
def test_a_limit_is_named_where_it_holds(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """Trainers may start late, unless the policy is `wait`: then the job may have ended before."""
    with world(1, deadline=0.4, policy=policy) as created:
        created.thread.join(1.0)
        assert created.thread.is_alive() == (policy != "wait")
    (first, *_) = [line for line in caplog.messages if "waits for trainer 0" in line]
    assert first.endswith("waits for trainer 0: 0 s" + " of 0.4 s" * (policy == "wait"))


def test_a_step_has_its_whole_time_after_trainers_that_started_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with world(deadline=0.4) as created:
        created.thread.join(0.6)
        trainer = created.trainer(0)
        send(trainer, created.endpoint, 1.0)
        with pytest.raises(WireError, match="trainer 1 is lost: it sent nothing complete"):
            receive(trainer, created.endpoint)
    lines = [line.rpartition(": ")[2] for line in caplog.messages if "waits for trainer" in line]
    limited = [line for line in lines if " of " in line]
    assert " of " not in lines[0] and set(limited) == {"0 s of 0.4 s"}
