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
    assert any("server 0, step 0: waits for trainer 1: 0 s of" in line for line in caplog.messages)
