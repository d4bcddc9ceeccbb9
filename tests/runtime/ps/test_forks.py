"""`os.fork` in a process that serves and calls parameter servers: the child runs on."""

import os
import threading
import time
from contextlib import suppress

from runtime.errors import WireError
from runtime.ps.wire import transport
from runtime.ps.wire.admission import Admission, Limits
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import grpc, make_server
from tests.runtime.ps.world import receive, send, world


def codes_of_children(count: int) -> list[int]:
    """The exit codes of children that end at once, forked one after another."""
    codes: list[int] = []
    for _ in range(count):
        process = os.fork()
        if not process:
            time.sleep(0.05)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    return codes


def test_grpc_does_nothing_at_a_fork() -> None:
    grpc()
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"


def test_a_child_ends_well_beside_a_running_server() -> None:
    stopped = threading.Event()
    with world(1) as job:
        trainer = job.trainer(0)

        def steps() -> None:
            while not stopped.is_set():
                send(trainer, job.endpoint, 1.0)
                receive(trainer, job.endpoint)

        thread = threading.Thread(target=steps)
        thread.start()
        try:
            assert codes_of_children(30) == [0] * 30
        finally:
            stopped.set()
            thread.join()


def test_a_server_that_is_forked_from_a_trainer_ends_with_an_error() -> None:
    with world(1) as job:
        trainer = job.trainer(0)
        send(trainer, job.endpoint, 1.0)
        receive(trainer, job.endpoint)
        reads, writes = os.pipe()
        process = os.fork()
        if not process:
            transport.FORK_LIMIT = 0.5
            with suppress(OSError):
                try:
                    make_server("127.0.0.1:0", {}, {}, Security(), Admission(Limits(1, 1, 8)))
                    os.write(writes, b"listens")
                except WireError as error:
                    os.write(writes, str(error).encode())
            os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as said:
            text = said.read()
        assert os.waitpid(process, 0)[1] == 0
    assert f"process {os.getpid()}, from which this one was forked, was connected" in text
    assert 'get_context("spawn")' in text
