"""Copies of large arrays by several threads."""

from threading import Event

import numpy as np
import pytest

from runtime.gpu import chunks
from runtime.gpu.chunks import copied


@pytest.mark.parametrize("size", [1, 63, 64, 1001])
def test_all_bytes_are_copied_in_order(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "OVERLAPPED", 64)
    source, out = np.arange(size).astype("u1"), np.zeros(size, "u1")
    ranges = []
    for part in copied(out, source):
        assert np.array_equal(out[part], source[part])
        ranges.append(part)
    assert np.array_equal(out, source)
    assert [part.start for part in ranges] == [0, *(part.stop for part in ranges[:-1])]
    assert len(ranges) == (1 if size < 64 else chunks.CHUNKS)


def test_a_chunk_is_copied_after_its_bytes_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "OVERLAPPED", 64)
    source, out = np.zeros(64, "u1"), np.zeros(64, "u1")

    def arrive(number: int) -> None:
        source[8 * number : 8 * number + 8] = number

    waits = [lambda number=number: arrive(number) for number in range(chunks.CHUNKS)]
    assert sum(1 for _ in copied(out, source, waits)) == chunks.CHUNKS
    assert out.tolist() == [number for number in range(8) for _ in range(8)]


def test_no_thread_copies_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "OVERLAPPED", 64)
    source, out, is_late = np.ones(64, "u1"), np.zeros(64, "u1"), Event()

    def fail() -> None:
        raise ValueError("no bytes")

    waits = [fail, *[lambda: is_late.wait(0.02)] * (chunks.CHUNKS - 1)]
    with pytest.raises(ValueError, match="no bytes"):
        list(copied(out, source, waits))
    assert out[8:].all()
