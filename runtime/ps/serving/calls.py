"""The single calls that a server answers: one method for each value of the field `do`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.service import ROWS, Service
from runtime.ps.serving.delayed import Delayed
from runtime.ps.serving.ending import ending
from runtime.ps.serving.exchange import Traffic
from runtime.ps.serving.finish import Finish
from runtime.ps.serving.members import Members
from runtime.ps.serving.shard import Shard
from runtime.ps.serving.sums import Sums
from runtime.ps.telemetry.role import Telemetry
from runtime.ps.wire.packets import (
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


class Calls:
    """Answers calls about one server's variables; any thread may call."""

    def __init__(
        self, service: Service, shard: Shard, delayed: Delayed, members: Members, sums: Sums,
        traffic: Traffic, telemetry: Telemetry, finish: Finish, write_snapshot: Callable[[], None],
    ) -> None:  # fmt: skip
        self._service, self._shard, self._delayed = service, shard, delayed
        self._finish, self._write_snapshot = finish, write_snapshot
        self._members, self._sums, self._traffic = members, sums, traffic
        self._log = telemetry.log
        self._started = time.monotonic()
        self._parts: dict[str, tuple[int, dict[int, bytes]]] = {}
        self._does: Mapping[str, Callable[[Mapping[str, Any], memoryview], Answer]] = {
            "hello": self._hello,
            "beat": self._beat,
            "complete": self._complete,
            "leave": self._leave,
            "finished": self._finished,
            "abort": self._abort,
            "save": self._save,
            "status": self._status,
            "push": self._push,
        }

    def answer(self, message: bytes, context: Any) -> bytes:
        """Answer a call. Raises WireError for an unknown one."""
        header, raw = unpack(message)
        does = self._does.get(field(header, "do", str))
        if header["do"] != "sum" and does is None:
            raise WireError(f"unknown call {header['do']!r}")
        self._traffic.received += len(message)
        self._traffic.messages += 1
        return pack(*(self._sum(header, context) if does is None else does(header, raw)))

    # ---- trainers

    def _trainer(self, header: Mapping[str, Any]) -> int:
        trainer: int = field(header, "trainer", int)
        if not 0 <= trainer < self._service.trainers:
            raise WireError(f"there is no trainer {trainer}: there are {self._service.trainers}")
        return trainer

    def _hello(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        trainer = self._trainer(header)
        self._members.beat(trainer)
        if self._shard.failure:
            raise WireError(self._shard.failure)
        step = self._shard.step
        if self._shard.takes_snapshots and self._shard.snapshot_step < step:
            self._write_snapshot()
        now = {"step": step, "awaits_ends": self._finish.awaits_ends}
        return self._service.catalogue(trainer) | now, b""

    def _beat(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        self._members.beat(self._trainer(header))
        state = {"step": self._shard.step, "failure": self._shard.failure}
        return state | {"time": time.time_ns()}, b""

    def _complete(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        """Mark a trainer as completed; idempotent."""
        trainer = self._trainer(header)
        if trainer not in self._members.finished():
            self._shard.drop(trainer)
            self._members.complete(trainer)
            self._write_snapshot()
            self._log.info("trainer completed", trainer=trainer)
        return {}, b""

    def _leave(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        self._members.leave(self._trainer(header))
        return {}, b""

    def _finished(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        self._finish.hear(field(header, "endpoint", str))
        return {}, b""

    def _abort(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        why = f"trainer {self._trainer(header)} ended: {field(header, 'why', str)[:2000]}"
        self._members.abort(why)
        self._log.warning("the job fails", why=why)
        return {}, b""

    def _save(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        with self._shard.changed, self._delayed.lock:
            self._service.save(field(header, "name", str), field(header, "folder", str))
        self._log.info("saved a table", name=header["name"], folder=header["folder"])
        return {}, b""

    def _sum(self, header: Mapping[str, Any], context: Any) -> Answer:
        name, step = field(header, "name", str), field(header, "step", int)
        return {}, self._sums.get(name, step, ending(context, self._sums.changed))

    # ---- gradients of trainers that do not wait

    def _push(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
        whole = self._whole(header, raw)
        if whole is None:
            return {"done": False}, b""
        if self._service.is_synchronous:
            raise WireError(f"server {self._service.endpoint} only accepts gradients in steps")
        trainer = self._trainer(header)
        sent = field(header, "sender", str), field(header, "number", int)
        name = field(header, "name", str)
        count: int = header.get("rows", 0) if isinstance(header.get("rows"), int) else 0
        if header.get("adds"):
            return {"done": self._delayed.count(*sent, name, array_field(header, whole))}, b""
        if header.get("rows") is None:
            done = self._delayed.push(*sent, trainer, name, array_field(header, whole))
            return {"done": done}, b""
        rows = np.frombuffer(whole[: count * 8], np.int64)
        values = array_field(header, whole[count * 8 :])
        return {"done": self._delayed.push_rows(*sent, trainer, name, rows, values)}, b""

    def _whole(self, header: Mapping[str, Any], raw: memoryview) -> memoryview | None:
        """Return the data of a push once all its parts have arrived."""
        part, parts = field(header, "part", int), field(header, "parts", int)
        if parts == 1:
            return raw
        sender, number = field(header, "sender", str), field(header, "number", int)
        if not 0 <= part < parts <= self._most_parts(field(header, "name", str)):
            raise WireError(f"a push claims part {part} of {parts}")
        known, found = self._parts.get(sender, (number, {}))
        if known != number:
            found = {}
        found[part] = bytes(raw)
        self._parts[sender] = (number, found)
        if len(self._parts) > 4 * self._service.trainers:
            self._parts.pop(next(iter(self._parts)))
        if len(found) < parts:
            return None
        del self._parts[sender]
        return memoryview(b"".join(found[index] for index in range(parts)))

    def _most_parts(self, name: str) -> int:
        """The maximum number of parts of a gradient."""
        for each in self._service.gradients:
            if each.name == name:
                size = (prod(each.shape) + each.shape[0] * each.is_sparse * 2) * 8
                return 4 + size // (1 << 20)
        raise WireError(f"gradient {name!r} does not belong to server {self._service.endpoint}")

    # ---- variables

    def fetch(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Answer one request for variables or rows. Raises WireError for those not stored here."""
        message = first_message(messages)
        self._traffic.received += len(message)
        self._traffic.messages += 1
        header, raw = unpack(message)
        if field(header, "do", str) == "rows":
            arrays = [self._rows(header, raw)]
        else:
            arrays = self._read(header, context)
        described = [[str(each.dtype), list(each.shape)] for each in arrays]
        known = pack({"arrays": described, "step": self._shard.step})
        for message in chain([known], value_messages(arrays)):
            self._traffic.sent += len(message)
            yield message

    def _read(self, header: Mapping[str, Any], context: Any) -> list[Array]:
        names, step = names_field(header, "names"), field(header, "step", int)
        if step > self._shard.step:
            self._await(step, context)
        with self._shard.changed, self._delayed.lock:
            variables = self._service.variables()
            missing = [name for name in names if name not in variables]
            if missing:
                raise WireError(
                    f"variable {missing[0]!r} is not on server {self._service.endpoint}"
                )
            if step == self._shard.previous.step < self._shard.step:
                return [self._before(name) for name in names]
            found = [np.array(variables[name]) for name in names]
            for name in names if "trainer" in header else ():
                self._service.received(name, self._trainer(header))
            return found

    def _await(self, step: int, context: Any) -> None:
        """Wait for a step. Raises WireError at the end of the call or of the job, or on timeout."""
        ended = ending(context, self._shard.changed)
        if not self._shard.wait(step, ended, STEP_SECONDS):
            raise WireError(self._shard.failure or f"step {step} is not there: {self._shard.step}")

    def _before(self, name: str) -> Array:
        """A variable after the last step but one, if a message has it; else its current value."""
        for key, messages in self._shard.previous.messages.items():
            if name in key:
                layout = self._shard.layout(key)
                vector = np.frombuffer(b"".join(m[32:] for m in messages), np.uint8)
                return layout.block(name).view(vector)
        return np.array(self._service.variables()[name])

    def _rows(self, header: Mapping[str, Any], raw: memoryview) -> Array:
        name = field(header, "name", str)
        if len(raw) % 8:
            raise WireError(f"{len(raw)} bytes are not row numbers")
        name, divisor = self._service.lookups.get(name, (name, 1))
        rows = np.frombuffer(raw, known_dtype("int64")) // divisor
        with self._shard.changed, self._delayed.lock:
            table = self._service.variables().get(name)
            if table is None or not table.ndim:
                raise WireError(f"table {name!r} is not on server {self._service.endpoint}")
            if len(rows) and not 0 <= rows.min() <= rows.max() < len(table):
                raise WireError(f"a row is not among the {len(table)} of {name!r}")
            return np.take(table, rows, axis=0, mode="clip")  # much faster than indexing

    # ---- status

    def _status(self, header: Mapping[str, Any], raw: memoryview) -> Answer:
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
