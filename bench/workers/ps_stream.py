"""Raw gRPC streams with the bytes of a job's steps: the limit of the transport.

    ps_stream.py ROLE NUMBER ENDPOINTS BYTES STEPS

A client streams BYTES to every server at once, in chunks, and receives as many. It prints a line of
JSON as `ps_role.py` does.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from runtime.memory.allocator import keep_freed_memory
from runtime.ps.wire.admission import Admission, Limits
from runtime.ps.wire.layout import CHUNK_BYTES
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import make_server, open_channel, stream_call

WARM = 20


def chunks(nbytes: int) -> list[bytes]:
    """Messages of `nbytes` bytes in total."""
    return [bytes(min(CHUNK_BYTES, nbytes - at)) for at in range(0, nbytes, CHUNK_BYTES)]


def serve(endpoint: str, nbytes: int) -> None:
    """Answer every client until a signal comes."""
    answer = chunks(nbytes)

    def exchange(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        come = 0
        for message in messages:
            come += len(message)
            if come == nbytes:
                come = 0
                yield from answer

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    server, _ = make_server(
        endpoint, {}, {"Exchange": exchange}, Security.from_env(), Admission(Limits())
    )
    server.start()
    ended.wait()
    server.stop(None).wait()


def stream(endpoints: list[str], nbytes: int, steps: int) -> None:
    """Exchange with every server, and print steps per second."""
    message, security = chunks(nbytes), Security.from_env()
    queues: list[SimpleQueue[bytes]] = [SimpleQueue() for _ in endpoints]
    calls = [
        stream_call(open_channel(endpoint, security), "Exchange")(
            iter(queue.get, b""), wait_for_ready=True, metadata=security.metadata()
        )
        for endpoint, queue in zip(endpoints, queues, strict=True)
    ]

    def run(count: int) -> None:
        for _ in range(count):
            for queue in queues:
                for part in message:
                    queue.put(part)
            for call in calls:
                for _ in message:
                    next(call)

    run(WARM)
    cpu, started = time.process_time(), time.time()
    run(steps)
    seconds, cpu = time.time() - started, time.process_time() - cpu
    print(json.dumps({"rate": steps / seconds, "cpu": cpu / steps}), flush=True)
    for queue in queues:
        queue.put(b"")


def main(role: str, number: str, endpoints: str, nbytes: str, steps: str) -> None:
    """Run one role."""
    keep_freed_memory()
    if role == "server":
        serve(endpoints.split(",")[int(number)], int(nbytes))
    else:
        stream(endpoints.split(","), int(nbytes), int(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
