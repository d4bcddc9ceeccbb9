"""Messages between the caller and a worker, whether the receiver polls first or sleeps."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep

import numpy as np
import pytest

from runtime.parallel.channel import Channel
from runtime.parallel.region import SharedRegion


@contextmanager
def ends(spin: float) -> Generator[tuple[Channel, Channel]]:
    """Both ends of a connection over one region, closed afterwards."""
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    region = SharedRegion.create()
    theirs = SharedRegion(os.dup(region.descriptor))
    with first, second:
        yield Channel(first, region, spin), Channel(second, theirs, spin)
    region.close()
    theirs.close()


@pytest.mark.parametrize("spin", [0.0, 1e-4, 0.5])
def test_a_message_arrives_while_the_receiver_waits(spin: float) -> None:
    """It comes before, during and after the time of polling."""
    with ends(spin) as (here, there):
        sender = Thread(target=lambda: (sleep(0.02), there.send({"do": "done"}, [VALUE])))
        sender.start()
        message = here.receive()
        sender.join()
        assert message is not None
        np.testing.assert_array_equal(here.values(message, copies=True)[0], VALUE)


@pytest.mark.parametrize("spin", [0.0, 0.01])
def test_a_wait_without_a_message_takes_its_time_and_no_longer(spin: float) -> None:
    start = monotonic()
    with ends(spin) as (here, _):
        assert not here.waits(0.05)
    assert 0.04 < monotonic() - start < 2


@pytest.mark.parametrize("spin", [0.0, 5.0])
def test_closed_peer_is_detected(spin: float) -> None:
    start = monotonic()
    with ends(spin) as (here, there):
        there.connection.close()
        assert here.waits(5)
        assert here.receive() is None
    assert monotonic() - start < 4


VALUE = np.arange(6, dtype="float32").reshape(2, 3)
