"""The endpoint that a launcher opened is the one at which the rendezvous is hosted."""

from __future__ import annotations

import pytest

from fleet.launch.variables import listener
from runtime.collective.endpoint import listen
from runtime.errors import RendezvousError


def test_a_socket_of_the_launcher_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = listener("127.0.0.1")
    port = opened.getsockname()[1]
    monkeypatch.setenv("FLUID_ENDPOINT_FD", str(opened.detach()))
    with listen(f"127.0.0.1:{port}") as taken:
        assert taken.getsockname()[1] == port
        with pytest.raises(RendezvousError, match="in use"):
            listen(f"127.0.0.1:{port}")


def test_a_number_that_is_no_socket_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in ("0", "9999"):
        monkeypatch.setenv("FLUID_ENDPOINT_FD", number)
        with listen("127.0.0.1:0") as result:
            assert result.getsockname()[1] > 0
    monkeypatch.setenv("FLUID_ENDPOINT_FD", "x")
    with pytest.raises(RendezvousError, match="FLUID_ENDPOINT_FD is 'x', expected a whole number"):
        listen("127.0.0.1:0")
