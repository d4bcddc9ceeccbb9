"""Order of steps that a script launches on several CUDA streams, one after the other.

Kernels on one stream run in order, those of two streams do not. Steps that share an arena or state
must: the owner of such memory remembers the stream that used it last, and another stream waits for
it. Steps on the same stream cost a comparison.
"""

from __future__ import annotations

from typing import Any


class StreamOrder:
    """The stream of each device that used some memory last."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def follow(self, device: str, stream: Any) -> None:
        """Let a stream, now current, wait for the work that uses the memory on another stream.

        None is the stream of the host, whose work has ended when a launch returns.
        """
        last = self._last.get(device)
        if stream is None or stream == last:
            return
        if last is not None:
            stream.wait_stream(last)
        self._last[device] = stream
