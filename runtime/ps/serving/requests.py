"""The single calls that a server answers: one method for each value of the field `do`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.escape import printable_lines
from runtime.errors import WireError
from runtime.ps.service import ROWS, Service
from runtime.ps.serving.asynchronous_shard import MAX_NUMBER, AsynchronousShard
from runtime.ps.serving.budget import Budget
from runtime.ps.serving.cancellable_waits import ending
from runtime.ps.serving.exchange import Traffic
from runtime.ps.serving.members import Members
from runtime.ps.serving.saves import save_folder
from runtime.ps.serving.shard import Shard
from runtime.ps.serving.shutdown import Shutdown
from runtime.ps.serving.sums import Sums
from runtime.ps.telemetry.role import Telemetry
from runtime.ps.wire.admission import Admission
from runtime.ps.wire.callers import Caller, caller_of
from runtime.ps.wire.frames import HEADER_BYTES
from runtime.ps.wire.layout import CHUNK_BYTES, ShardLayout
from runtime.ps.wire.packets import (
    MAX_ROWS,
    array_field,
    field,
    first_message,
    known_dtype,
    names_field,
    pack,
    unpack,
    value_messages,
)

Answer = tuple[dict[str, Any], bytes]

STEP_SECONDS = 60.0
"""Maximum wait of a trainer that requests the values after a later step."""
MIN_READ_BYTES = 64 << 20
"""Bytes that trainers may read at once even if all variables have fewer."""
MAX_GUEST_BYTES = 256 << 20
"""Maximum bytes that peers which own no trainer's id may read at once."""
MAX_WHY = 2000
"""Maximum number of characters of the reason for which a trainer ends."""
MAX_SENDER = 128
"""Maximum number of characters of a sender's name."""


@dataclass(frozen=True)
class Request:
    """One call: its header, its data, who makes it, and gRPC's context."""

    header: Mapping[str, Any]
    raw: memoryview
    caller: Caller
    context: Any

    @staticmethod
    def read(message: bytes, context: Any) -> Request:
        """Parse the message of a call. Raises WireError if it is malformed."""
        caller = caller_of(context.invocation_metadata(), context.peer())
        return Request(*unpack(message), caller, context)

    def text(self, name: str) -> str:
        """A field that is a text. Raises WireError if it is not."""
        return str(field(self.header, name, str))

    def number(self, name: str) -> int:
        """A field that is an integer. Raises WireError if it is not."""
        return int(field(self.header, name, int))


class RequestHandlers:
    """Answers calls about one server's variables; any thread may call."""

    def __init__(
        self, service: Service, shard: Shard, delayed: AsynchronousShard, members: Members,
        sums: Sums, traffic: Traffic, telemetry: Telemetry, shutdown: Shutdown,
        write_snapshot: Callable[[], None], admission: Admission, save_dir: str,
    ) -> None:  # fmt: skip
        self._service, self._shard, self._delayed = service, shard, delayed
        self._shutdown, self._write_snapshot = shutdown, write_snapshot
        self._members, self._sums, self._traffic = members, sums, traffic
        self._log, self._admission, self._save_dir = telemetry.log, admission, save_dir
        self._started = time.monotonic()
        self._parts: dict[int, tuple[str, int, dict[int, bytes]]] = {}
        most = max(MIN_READ_BYTES, sum(array.nbytes for array in service.variables().values()))
        self._for_trainers, self._for_guests = Budget(most), Budget(min(most, MAX_GUEST_BYTES))
        self._does: Mapping[str, Callable[[Request], Answer]] = {
            "hello": self._hello,
            "complete": self._complete,
            "leave": self._leave,
            "finished": self._finished,
            "abort": self._abort,
            "save": self._save,
            "status": self._status,
            "push": self._push,
            "sum": self._sum,
        }

    def answer(self, message: bytes, context: Any) -> bytes:
        """Answer a call. Raises WireError for an unknown one."""
        request = Request.read(message, context)
        does = self._does.get(request.text("do"))
        if does is None:
            raise WireError(f"unknown call {request.text('do')[:200]!r}")
        if does != self._finished:  # repeated until all servers have finished
            self._traffic.received += len(message)
            self._traffic.messages += 1
        return pack(*does(request))

    # ---- trainers

    def beat(self, context: Any) -> bytes:
        """Answer a heartbeat, which claims the trainer's id of its metadata; never waits."""
        caller = caller_of(context.invocation_metadata(), context.peer())
        if caller.trainer is None:
            raise WireError("a heartbeat has no trainer in its metadata")
        self._members.claim(caller.trainer, caller.session)
        state = {"step": self._shard.step, "failure": self._shard.failure}
        return pack(state | {"time": time.time_ns()})

    def hold(self, message: bytes, context: Any) -> bytes:
        """Keep the id of a trainer for its session until the call or the server ends."""
        caller = caller_of(context.invocation_metadata(), context.peer())
        if caller.trainer is None:
            raise WireError("a call of Hold has no trainer in its metadata")
        self._members.link(caller.trainer, caller.session)
        try:
            ended = ending(context, self._members.closing)
            with self._members.closing:
                self._members.closing.wait_for(lambda: ended() or self._members.is_closed)
        finally:
            self._members.unlink(caller.trainer, caller.session)
        return pack({})

    def _trainer(self, request: Request) -> int:
        """The trainer of a request, whose id belongs to the caller. Raises WireError otherwise."""
        trainer = request.number("trainer")
        self._members.expect_owner(trainer, request.caller)
        return trainer

    def _hello(self, request: Request) -> Answer:
        trainer = request.number("trainer")
        if not 0 <= trainer < self._service.trainers:
            raise WireError(f"there is no trainer {trainer}: there are {self._service.trainers}")
        if self._shard.failure:
            raise WireError(self._shard.failure)
        step = self._shard.step
        is_owner = self._members.is_owner(request.caller.session)
        if is_owner and self._shard.takes_snapshots and self._shard.snapshot_step < step:
            self._write_snapshot()
        now = {"step": step, "awaits_ends": self._shutdown.awaits_ends}
        return self._service.catalogue(trainer) | now, b""

    def _complete(self, request: Request) -> Answer:
        """Mark a trainer as completed; idempotent."""
        trainer = self._trainer(request)
        if trainer not in self._members.finished():
            self._shard.drop(trainer)
            self._members.complete(trainer)
            self._write_snapshot()
            self._log.info("trainer completed", trainer=trainer)
        return {}, b""

    def _leave(self, request: Request) -> Answer:
        self._members.leave(self._trainer(request))
        return {}, b""

    def _finished(self, request: Request) -> Answer:
        return {"completed": self._shutdown.asked(request.text("endpoint"))}, b""

    def _abort(self, request: Request) -> Answer:
        why = printable_lines(request.text("why")[:MAX_WHY])
        why = f"trainer {self._trainer(request)} ended: {why}"
        self._members.abort(why)
        self._log.warning("the job fails", why=why)
        return {}, b""

    def _save(self, request: Request) -> Answer:
        self._trainer(request)
        name, folder = request.text("name"), request.text("folder")
        if name not in self._service.variables():
            raise WireError(f"table {name[:200]!r} is not on server {self._service.endpoint}")
        place = save_folder(self._save_dir, folder, name)
        try:
            with self._shard.changed, self._delayed.lock:
                self._service.save(name, str(place))
        except OSError as error:
            raise WireError(f"{name!r} cannot be saved to {folder!r}: {error.strerror}") from error
        self._log.info("saved a table", name=name, folder=folder)
        return {}, b""

    def _sum(self, request: Request) -> Answer:
        name, step = request.text("name"), request.number("step")
        ended = ending(request.context, self._sums.changed)
        return {}, self._sums.get(name, step, ended)

    # ---- gradients of trainers that do not wait

    def _push(self, request: Request) -> Answer:
        trainer = self._trainer(request)
        if self._service.is_synchronous:
            raise WireError(f"server {self._service.endpoint} only accepts gradients in steps")
        sender, number, name = (
            request.text("sender"),
            request.number("number"),
            request.text("name"),
        )
        if len(sender) > MAX_SENDER or not 0 < number < MAX_NUMBER:
            raise WireError(f"a push is number {number} of a sender of {len(sender)} characters")
        header, adds = request.header, bool(request.header.get("adds"))
        whole = self._whole(request, trainer, sender, number, adds)
        if whole is None:
            return {"done": False}, b""
        sent = sender, number, trainer, name
        if adds:
            return {"done": self._delayed.count(*sent, array_field(header, whole))}, b""
        if header.get("rows") is None:
            return {"done": self._delayed.push(*sent, array_field(header, whole))}, b""
        count = request.number("rows")
        if not 0 <= count * 8 <= len(whole):
            raise WireError(f"a push of {len(whole)} bytes claims {count} rows")
        rows = np.frombuffer(whole[: count * 8], np.int64)
        values = array_field(header, whole[count * 8 :])
        return {"done": self._delayed.push_rows(*sent, rows, values)}, b""

    def _whole(
        self, request: Request, trainer: int, sender: str, number: int, adds: bool
    ) -> memoryview | None:
        """Return the data of a push once all its parts have arrived; one a trainer is kept."""
        part, parts = request.number("part"), request.number("parts")
        if parts == 1:
            return request.raw
        most = 1 if adds else self._most_parts(request.text("name"))
        if not 0 <= part < parts <= most or len(request.raw) > CHUNK_BYTES:
            raise WireError(f"a push claims part {part} of {parts}, {len(request.raw)} bytes")
        *sender_and_number, received = self._parts.get(trainer, (sender, number, {}))
        if sender_and_number != [sender, number]:
            received = {}
        received[part] = bytes(request.raw)
        self._parts[trainer] = sender, number, received
        if not all(index in received for index in range(parts)):
            return None
        self._parts.pop(trainer, None)
        return memoryview(b"".join(received[index] for index in range(parts)))

    def _most_parts(self, name: str) -> int:
        """The maximum number of parts of a gradient."""
        for gradient in self._service.gradients:
            if gradient.name == name:
                size = prod(gradient.shape) * known_dtype(gradient.dtype).itemsize
                return 2 + (size + gradient.shape[0] * gradient.is_sparse * 8) // CHUNK_BYTES
        raise WireError(
            f"gradient {name[:200]!r} does not belong to server {self._service.endpoint}"
        )

    # ---- variables

    def fetch(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answer one request for variables or rows. Raises WireError for those not stored here."""
        message = first_message(messages)
        self._traffic.received += len(message)
        self._traffic.messages += 1
        request = Request.read(message, context)
        reads = {"read": self._read, "rows": self._rows}.get(request.text("do"))
        if reads is None:
            raise WireError(f"unknown request {request.text('do')[:200]!r}")
        with reads(request) as arrays:
            described = [[str(array.dtype), list(array.shape)] for array in arrays]
            header = pack({"arrays": described, "step": self._shard.step})
            for message in chain([header], value_messages(arrays)):
                self._traffic.sent += len(message)
                with self._admission.waiting(context):
                    yield message

    @contextmanager
    def _reserved(self, request: Request, nbytes: int) -> Generator[None]:
        """The block may copy so many bytes for a request. Raises as `Budget.reserved` does."""
        is_member = self._members.is_owner(request.caller.session)
        budget = self._for_trainers if is_member else self._for_guests
        ended = ending(request.context, budget.changed)
        with budget.reserved(nbytes, ended, STEP_SECONDS):
            yield

    @contextmanager
    def _read(self, request: Request) -> Generator[list[Array]]:
        names, step = names_field(request.header, "names"), request.number("step")
        trainer = self._trainer(request) if "trainer" in request.header else None
        variables = self._service.variables()
        missing = [name for name in names if name not in variables]
        if missing:
            where = self._service.endpoint
            raise WireError(f"variable {missing[0][:200]!r} is not on server {where}")
        if step > self._shard.step:
            self._await(step, request)
        with self._reserved(request, sum(variables[name].nbytes for name in names)):
            yield self._copied(names, step, trainer)

    def _copied(self, names: list[str], step: int, trainer: int | None) -> list[Array]:
        """Copies of variables between two updates, after the last step but one if asked for."""
        with self._shard.changed, self._delayed.lock:
            if step == self._shard.previous.step < self._shard.step:
                return [self._before(name) for name in names]
            variables = self._service.variables()
            copies = [np.array(variables[name]) for name in names]
            if trainer is not None:
                for name in names:
                    self._service.received(name, trainer)
            return copies

    def _await(self, step: int, request: Request) -> None:
        """Wait for a step. Raises WireError at the end of the call or of the job, or on timeout."""
        if not self._members.is_owner(request.caller.session):
            raise WireError(f"step {step} is not there: {self._shard.step}; only trainers may wait")
        ended = ending(request.context, self._shard.changed)
        if not self._shard.wait(step, ended, STEP_SECONDS):
            raise WireError(self._shard.failure or f"step {step} is not there: {self._shard.step}")

    def _before(self, name: str) -> Array:
        """A variable after the last step but one, if a message has it; else its current value."""
        for key, messages in self._shard.previous.messages.items():
            if name in key:
                return _block(self._shard.layout(key), name, messages)
        return np.array(self._service.variables()[name])

    @contextmanager
    def _rows(self, request: Request) -> Generator[list[Array]]:
        name, raw = request.text("name"), request.raw
        if len(raw) % 8 or len(raw) > 8 * MAX_ROWS:
            raise WireError(f"{len(raw)} bytes are not the numbers of {MAX_ROWS} rows at most")
        name, divisor = self._service.lookups.get(name, (name, 1))
        rows = np.frombuffer(raw, known_dtype("int64")) // divisor
        table = self._service.variables().get(name)
        if table is None or not table.ndim:
            raise WireError(f"table {name[:200]!r} is not on server {self._service.endpoint}")
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(table):
            raise WireError(f"a row is not among the {len(table)} of {name!r}")
        with self._reserved(request, len(rows) * prod(table.shape[1:]) * table.itemsize):
            with self._shard.changed, self._delayed.lock:
                # `take` is much faster than indexing.
                values = np.take(table, rows, axis=0, mode="clip")
            yield [values]

    # ---- status

    def _status(self, request: Request) -> Answer:
        variables = self._service.variables()
        seconds = time.monotonic() - self._started
        step = self._shard.step if self._service.is_synchronous else self._delayed.step
        tables = {n: [list(a.shape), a.nbytes] for n, a in variables.items() if ROWS not in n}
        return {
            "endpoint": self._service.endpoint,
            "pid": os.getpid(),
            "synchronous": self._service.is_synchronous,
            "step": step,
            "seconds": seconds,
            "received": self._traffic.received,
            "sent": self._traffic.sent,
            "messages": self._traffic.messages,
            "trainers": self._members.described(),
            "waiting_for": self._shard.late_trainers() if self._service.is_synchronous else [],
            "snapshot": self._shard.snapshot_step,
            "failure": self._shard.failure,
            "tables": tables,
        }, b""


def _block(layout: ShardLayout, name: str, messages: Sequence[bytes]) -> Array:
    """A copy of a block in the messages of a version."""
    block = layout.block(name)
    chunks = [np.frombuffer(message, np.uint8, offset=HEADER_BYTES) for message in messages]
    parts = [chunks[piece.chunk][piece.there] for piece in layout.pieces(block)]
    return np.concatenate([np.zeros(0, np.uint8), *parts]).view(block.dtype).reshape(block.shape)
