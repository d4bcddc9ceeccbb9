"""Gradients that a thread sends: how many are merged, and how many wait."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from runtime.ps.training.communicator import Merging

SECONDS = 20


class NumberedGradients:
    """Keeps what is sent; the first send waits until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.sent: list[float] = []

    def push(self, endpoint: str, name: str, array: Any, rows: Any) -> None:
        self.begun.set()
        assert self.go.wait(SECONDS)
        self.sent.append(array.item())


def test_gradients_are_merged_and_wait_up_to_a_number() -> None:
    pushes: Any = NumberedGradients()
    merging = Merging(pushes, most=2, waiting=3)
    merging.put("a:1", "g", np.ones(1), None)
    assert pushes.begun.wait(SECONDS)
    for value in (2.0, 4.0, 5.0):
        merging.put("a:1", "g", np.full(1, value), None)
    more = threading.Thread(target=merging.put, args=("a:1", "g", np.full(1, 9.0), None))
    more.start()
    more.join(0.2)
    assert more.is_alive()  # the queue is full
    pushes.go.set()
    more.join(SECONDS)
    merging.stop()
    assert pushes.sent[:2] == [1.0, 3.0]
    assert pushes.sent[2:] in ([7.0], [5.0, 9.0])  # the last one came before or after the send
