"""A server with a controller, its agents, and messages that are none of theirs."""

import socket

import pytest

from fluid.contrib.slim.nas import ControllerServer, SearchAgent, SearchSpace
from fluid.contrib.slim.searcher import EvolutionaryController


class Counting(EvolutionaryController):
    def __init__(self) -> None:
        super().__init__()
        self.learned = []

    def update(self, tokens, reward) -> None:
        self.learned.append((tokens, reward))

    def next_tokens(self):
        return [len(self.learned), 7]


@pytest.fixture
def served():
    controller = Counting()
    server = ControllerServer(controller, ("127.0.0.1", 0), search_steps=2, key="k")
    server.start()
    yield server, controller
    server.close()


def test_agents_get_tokens(served) -> None:
    server, controller = served
    agent = SearchAgent(server.ip(), server.port(), key="k")
    assert agent.next_tokens() == [0, 7]
    assert agent.update([0, 7], 0.5) == [1, 7]
    assert agent.update([1, 7], 0.25) == [2, 7]
    assert controller.learned == [([0, 7], 0.5), ([1, 7], 0.25)]


def test_other_messages_are_ignored(served) -> None:
    server, controller = served
    with pytest.raises(ValueError, match="is the key right"):
        SearchAgent(server.ip(), server.port(), key="other").update([1, 2], 1.0)
    for message in (b"\xff\xfe", b"k\t1,a\t0.5", b"k\t1", b"", b"k\t1\tx"):
        with socket.create_connection((server.ip(), server.port())) as connection:
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
    assert controller.learned == []
    assert SearchAgent(server.ip(), server.port(), key="k").next_tokens() == [0, 7]


def test_space_is_for_subclasses() -> None:
    with pytest.raises(NotImplementedError):
        SearchSpace().init_tokens()
