"""GEO step by step: what a trainer sends and continues with after each exchange."""

import numpy as np

from runtime.ps.training.communicator import Geo

TRAINERS = 2


class OneServer:
    """A fake server that adds pushed values; replaces channels and numbered pushes."""

    def __init__(self, value):
        self.value = np.array(value, np.float32)
        self.pushed = []

    def push(self, endpoint, name, array, rows):
        assert (endpoint, name, rows) == ("a:1", "w.delta", None)
        self.pushed.append(array.tolist())
        self.value = self.value + array

    def fetch(self, endpoint, header):
        assert header == {"do": "read", "names": ["w"], "step": 0}
        return {}, [self.value.copy()]


def geo(server, steps):
    return Geo(server, server, steps, lambda: TRAINERS, ".delta")


def put(geo, *value):
    geo.put("a:1", "w.delta", np.array(value, np.float32), None)
    return geo.recv(["w"], ["a:1"])[0].tolist()


def test_a_trainer_sends_its_share_of_how_far_it_moved():
    server = OneServer([1.0, 2.0])
    created = geo(server, 2)
    assert put(created, 1.5, 2.0) == [1.5, 2.0]  # the first of two steps: nothing is sent
    assert server.pushed == []
    # moved (2, -1), a share of (1, -0.5); the server has (2, 1.5), and the rest stays: (1, -0.5)
    assert put(created, 3.0, 1.0) == [3.0, 1.0]
    assert server.pushed == [[1.0, -0.5]]
    assert server.value.tolist() == [2.0, 1.5]


def test_geo_adds_remote_deltas_and_sends_the_rest_later():
    server = OneServer([0.0])
    created = geo(server, 1)
    server.value += 10  # another trainer, after this one received 0 first
    created.start("a:1", "w", np.zeros(1, np.float32))
    # delta = 4 / 2; the server has 12; now = 4 + (12 - 2) = 14, of which 2 are not sent yet
    assert put(created, 4.0) == [14.0]
    # nothing moved since: (14 - 12) / 2 is sent, then (14 - 13) / 2
    assert put(created, 14.0) == [14.0]
    assert put(created, 14.0) == [14.0]
    assert server.pushed == [[2.0], [1.0], [0.5]]
    assert server.value.tolist() == [13.5]


def test_geo_stop_sends_pending_deltas():
    server = OneServer([0.0])
    created = geo(server, 3)
    for value in (1.0, 2.0, 3.0, 4.0):
        put(created, value)
    created.stop()
    # (3 - 0) / 2, then 3 + (1.5 - 1.5) = 3 on the trainer; (4 - 1.5) / 2
    assert server.pushed == [[1.5], [1.25]]
    assert not created.is_running
