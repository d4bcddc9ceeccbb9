"""Messages of parameter servers, and where blocks lie in a server's vector."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import WireError
from runtime.ps.wire.frames import HEADER_BYTES, Kind, new_frame, read_frame
from runtime.ps.wire.layout import make_layout


def test_a_message_is_read_as_it_was_written() -> None:
    message, view = new_frame(Kind.GRADIENT, 3, 2**40, 64, 12)
    view.view("float32")[:] = [1, 2, 3]
    assert len(message) == HEADER_BYTES + 12
    frame = read_frame(message)
    assert (frame.kind, frame.trainer, frame.step, frame.offset) == (
        Kind.GRADIENT,
        3,
        2**40,
        64,
    )
    assert frame.data.view("float32").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: m[:20], "shorter than its header"),
        (lambda m: b"\0" + m[1:], "begins with"),
        (lambda m: m[:4] + b"\x63\0" + m[6:], "of the kind 99"),
        (lambda m: m + b"x", "claims 4 bytes of data, but has 5"),
        (lambda m: m[:-1], "claims 4 bytes of data, but has 3"),
    ],
)
def test_damaged_messages_are_rejected(damage: object, message: str) -> None:
    whole, _ = new_frame(Kind.PARAMETER, 0, 1, 0, 4)
    with pytest.raises(WireError, match=message):
        read_frame(damage(whole))  # type: ignore[operator]


def test_blocks_are_aligned_and_chunks_cover_the_vector() -> None:
    layout = make_layout([("a", "float32", (3,)), ("b", "float64", (2, 5))], chunk=128)
    assert [block.offset for block in layout.blocks] == [0, 64]
    assert layout.nbytes == 144 and layout.chunks == ((0, 128), (128, 144))
    vector = np.zeros(layout.nbytes, np.uint8)
    layout.block("b").view(vector)[1, 4] = 7.0
    assert vector[136:144].view("float64") == [7.0]
    assert not vector[:136].any()


def test_an_allocated_message_is_zero_whatever_was_in_that_memory() -> None:
    for _ in range(50):
        before, view = new_frame(Kind.PARAMETER, 0, 1, 0, 4096)
        view[:] = 0xAB
        del before, view
        message, _ = new_frame(Kind.PARAMETER, 0, 1, 0, 4096)
        assert not any(message[HEADER_BYTES:])


def test_a_layout_names_each_block_once() -> None:
    with pytest.raises(WireError, match="'w' occurs twice"):
        make_layout([("w", "float32", (3,)), ("b", "float32", (1,)), ("w", "float32", (3,))])


def test_a_server_without_blocks_has_one_empty_chunk() -> None:
    assert make_layout([]).chunks == ((0, 0),)
