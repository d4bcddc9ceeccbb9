"""Hostile calls to parameter servers, with and without the token, beside a trainer that works.

They are random, or valid ones changed at random; some are left half open, some are no HTTP/2. A
server must answer each with a typed error or a valid answer, send no memory but that of its
variables, stay small, and keep serving its trainer.
"""

from __future__ import annotations

import argparse
import random
import resource
import socket
import struct
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, cast

import numpy as np

from runtime.ps.service import ROWS, Gradient, Service
from runtime.ps.settings import Settings
from runtime.ps.wire.callers import Caller
from runtime.ps.wire.frames import Kind, mark_end, new_frame, read_frame, text_frame
from runtime.ps.wire.packets import pack
from runtime.ps.wire.rows import row_frames
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import SERVICE, grpc, open_channel, stream_call, unary_call
from tests.runtime.ps.world import FAST, SIZE, World, receive, send

METHODS = ("Call", "Fetch", "Exchange", "Beat", "Nothing")
DOES = ("hello", "complete", "leave", "abort", "finished", "sum", "push", "read", "rows", "save",
        "status", "format", "")  # fmt: skip
OWN_DOES = tuple(action for action in DOES if action not in ("complete", "abort"))
"""What a peer asks for that has an id of its own: that one it may complete."""
FIELDS = ("trainer", "name", "names", "step", "sender", "number", "part", "parts", "dtype", "shape",
          "rows", "folder", "adds", "why", "endpoint")  # fmt: skip
HOSTILE = (
    None, -1, 0, 1, 2, 7, 1 << 70, 3.5, "", "w", "t", "g", "s", "count.trainer_1", "../../x",
    "/etc", "a\0b", "\ud800", "x" * 3000, [], [1 << 62, 1 << 62], [0] * 1000, ["w"], ["w", "w"],
    ["w", "t"], ["w"] * 400, {"a": 1}, True, "float32", "object", [SIZE],
)  # fmt: skip
TYPED = {"OK", "FAILED_PRECONDITION", "ABORTED", "UNIMPLEMENTED", "UNAUTHENTICATED", "CANCELLED"}
"""Status codes that a call may end with."""
REFUSED = "RST_STREAM with error code 7"
"""HTTP/2 refuses a stream of a connection that has too many, which is typed as UNAVAILABLE."""
SECONDS = 20.0
"""A call that takes longer hangs; one that waits for a step may, see `WAIT_SECONDS`."""
WAIT_SECONDS = 0.1
"""Timeout of streams of the attacker's own trainer, which may wait for a step."""
MARK = b"\xa5PRIVATE\x5a"
"""What memory of this process is filled with that no peer may receive."""
MAX_GROWTH = 200.0
"""Megabytes that the process may grow by."""
HALF_OPEN = 12
"""Number of calls that are kept half open."""

TOKEN = Security(token="secret")


class Delayed(World):
    """A server of an asynchronous job."""

    def service(self) -> Service:
        """As that of `World`; each gradient is applied as it comes."""
        variables = self.variables
        variables |= {f"count.trainer_{trainer}": np.zeros(1, np.int64) for trainer in range(2)}

        def update(feeds: Any, trainer: int) -> None:
            if "g" in feeds:
                variables["w"][...] = np.where(np.isfinite(feeds["g"]), variables["w"], 0)
            else:
                variables["t"][feeds["s" + ROWS]] *= 0

        def count(name: str, array: Any) -> None:
            variables[name] += array

        return replace(
            super().service(),
            is_synchronous=False,
            gradients=(
                Gradient("g", "float32", (SIZE,), False, None),
                Gradient("s", "float32", (50, 4), True, None),
            ),
            update=update,
            count=count,
            counters={f"count.trainer_{trainer}": trainer for trainer in range(2)},
        )


# ---- messages


def packet(chance: random.Random, does: Sequence[str]) -> bytes:
    """A call whose fields have values of any kind; sometimes it claims a wrong size."""
    header = {field: chance.choice(HOSTILE) for field in FIELDS if chance.random() < 0.6}
    if chance.random() < 0.5:
        header = valid_push(chance) | {chance.choice(FIELDS): chance.choice(HOSTILE)}
    raw = bytes(4 * SIZE) if chance.random() < 0.3 else chance.randbytes(chance.randrange(64))
    message = pack({"do": chance.choice(does), **header}, raw)
    return damaged(chance, message) if chance.random() < 0.3 else message


def valid_push(chance: random.Random) -> dict[str, Any]:
    """The header of a gradient of trainer 1."""
    number = chance.randrange(1, 1 << 40)
    header = {
        "trainer": 1,
        "sender": "s",
        "number": number,
        "part": 0,
        "parts": chance.choice((1, 2)),
    }
    header |= {"name": chance.choice("gs"), "dtype": "float32", "shape": [SIZE], "rows": None}
    return header | {"step": 0, "names": ["w"], "folder": "a", "why": "", "endpoint": "a:1"}


def frames(chance: random.Random) -> list[bytes]:
    """The messages of an exchange: a step of trainer 0, changed at random, or random ones."""
    if chance.random() < 0.3:
        return [random_frame(chance) for _ in range(chance.randrange(4))]
    step = chance.choice((1, 2, 3, 1 << 40))
    message, view = new_frame(Kind.GRADIENT, 0, step, 0, 4 * SIZE)
    view[:] = 0
    rows = np.array([3, 7])
    frames_of_step = [message, *row_frames(0, step, 0, rows, np.zeros((2, 4), np.float32))]
    if chance.random() < 0.5:
        mark_end(frames_of_step[-1])
    frames_of_step[chance.randrange(2)] = damaged(chance, frames_of_step[chance.randrange(2)])
    return frames_of_step * chance.choice((1, 1, 3))


def random_frame(chance: random.Random) -> bytes:
    """A message of an exchange with any kind, trainer, step, offset and size."""
    size = chance.choice((0, 1, 31, 4 * SIZE, 4 * SIZE + 64))
    kind = cast(Kind, chance.choice((*Kind, 0, 77)))  # of a peer of another version
    step, offset = (chance.choice((0, 1, 7, 1 << 40, (1 << 64) - 1)) for _ in range(2))
    message, view = new_frame(kind, chance.choice((0, 1, 9, 65535)), step, offset, size)
    view[:] = np.frombuffer(chance.randbytes(size), np.uint8)
    return message


def damaged(chance: random.Random, message: bytes) -> bytes:
    """A message with some bytes changed, cut, repeated, or another size in its header."""
    raw = bytearray(message)
    for _ in range(chance.randrange(4)):
        raw[chance.randrange(min(len(raw), chance.choice((8, 64, 1 << 20))))] = chance.randrange(
            256
        )
    cut = chance.random()
    if cut < 0.2:
        return bytes(raw[: chance.randrange(len(raw) + 1)])
    if cut < 0.3:
        return bytes(raw[:4]) + struct.pack("<I", chance.randrange(1 << 32)) + bytes(raw[8:])
    return bytes(raw) + (bytes(raw[-16:]) if cut < 0.4 else b"")


def hello(chance: random.Random) -> bytes:
    """The first message of an exchange, often valid."""
    texts = ('{"names": ["w"]}', '{"names": ["w", "t"]}', '{"names": ["w", "w"]}',
             '{"names": ["unknown"]}', '{"names": ["w", "t", "w"]}', "[]", "{", '{"names": 3}',
             '{"names": ["\\ud800"]}', "[" * 5000)  # fmt: skip
    return text_frame(Kind.HELLO, chance.choice((0, 0, 1, 9)), 0, chance.choice(texts))


def messages(chance: random.Random, method: str, does: Sequence[str]) -> list[bytes]:
    """The messages to send."""
    if method == "Exchange":
        first = [hello(chance)] if chance.random() < 0.8 else []
        return first + frames(chance)
    if method == "Fetch" and chance.random() < 0.4:
        names = chance.choice((["w"], ["w", "t"], ["w"] * 400, ["t", "w", "t"]))
        return [pack({"do": "read", "names": names, "step": chance.choice((0, 0, 1, 99))})]
    if method == "Fetch" and chance.random() < 0.4:
        rows = np.array([chance.choice((0, 3, 49, 50, -1)) for _ in range(chance.randrange(9))])
        return [pack({"do": "rows", "name": "t"}, rows.astype(np.int64).tobytes())]
    return [
        packet(chance, does) if chance.random() < 0.8 else chance.randbytes(chance.randrange(200))
    ]


# ---- the attack


def poison() -> None:
    """Fill memory that is free afterwards with a mark, as a secret that was read and dropped."""
    blocks = [
        MARK * (size // len(MARK)) for size in (512, 4032, 4064, 8096, 12160) for _ in range(4)
    ]
    blocks.clear()


def check(received: bytes) -> None:
    """AssertionError for bytes that a peer must not receive."""
    assert MARK not in received and MARK[1:5] not in received, "memory of the process was sent"


def is_value(data: bytes) -> bool:
    """Whether bytes are values of the variables: whole numbers, never positive."""
    values = np.frombuffer(data[: len(data) // 4 * 4], np.float32)
    return bool(((values <= 0) & (values == np.round(values))).all())


class Attacker:
    """A peer of one server. `half_open` are calls that it sends nothing in."""

    def __init__(self, world: World, security: Security, trainer: int | None) -> None:
        self.world, self._security, self._trainer = world, security, trainer
        self.channel = open_channel(world.endpoint, security)
        grpc().channel_ready_future(self.channel).result(10)
        self.metadata = (*security.metadata(), *Caller.new(trainer).metadata())
        self.half_open: deque[tuple[SimpleQueue[Any], Any]] = deque()
        self.codes: Counter[str] = Counter()

    def attack(self, chance: random.Random) -> None:
        """Make one hostile call and check what comes back."""
        poison()
        kind = chance.random()
        if kind < 0.02:
            return self._garbage(chance)
        if kind < 0.08:
            return self._leave_half_open(chance)
        method = chance.choice(METHODS)
        if self._trainer is not None and chance.random() < 0.2:
            self._end("Beat", unary_call(self.channel, "Beat"), b"", SECONDS)
        sent = messages(chance, method, DOES if self._trainer is None else OWN_DOES)
        if method in ("Fetch", "Exchange"):
            waits = self._trainer is not None
            seconds = WAIT_SECONDS if waits else SECONDS
            return self._end(method, stream_call(self.channel, method), iter(sent), seconds)
        return self._end(method, unary_call(self.channel, method), sent[0], SECONDS)

    def _end(self, method: str, call: Callable[..., Any], sent: Any, seconds: float) -> None:
        try:
            answers = call(sent, timeout=seconds, metadata=self.metadata)
            for number, answer in enumerate([answers] if isinstance(answers, bytes) else answers):
                check(answer)
                if method == "Fetch" and number:
                    assert is_value(answer), "a variable has bytes of others"
                if method == "Exchange" and read_frame(answer).kind is Kind.PARAMETER:
                    assert is_value(answer[32:]), "parameters have bytes of others"
            code = "OK"
        except grpc().RpcError as error:
            code = str(error.code().name)
            check(str(error.details()).encode(errors="replace"))
            waited = code == "DEADLINE_EXCEEDED" and seconds == WAIT_SECONDS
            refused = code == "UNAVAILABLE" and REFUSED in str(error.details())
            assert code in TYPED or waited or refused, (method, code, error.details())
        if self._security.token is None:
            assert code in ("UNAUTHENTICATED", "UNAVAILABLE"), (method, code)
        self.codes[code] += 1

    def _leave_half_open(self, chance: random.Random) -> None:
        """Start a call and send nothing."""
        method = chance.choice(("Call", "Fetch", "Exchange", "Beat"))
        queue: SimpleQueue[Any] = SimpleQueue()
        call = self.channel.stream_stream(f"/{SERVICE}/{method}")
        silent: Iterator[Any] = iter(queue.get, None)
        pending_call = call(silent, timeout=120, metadata=self.metadata)
        if self._security.token is None:
            assert pending_call.code().name == "UNAUTHENTICATED"  # without a message from this peer
        self.half_open.append((queue, pending_call))
        self.codes["half open"] += 1
        if len(self.half_open) > HALF_OPEN:
            self._close(*self.half_open.popleft())

    def _close(self, queue: SimpleQueue[Any], call: Any) -> None:
        queue.put(None)
        call.cancel()
        code = str(call.code().name)
        assert code in TYPED, code

    def _garbage(self, chance: random.Random) -> None:
        """Open a connection that is no HTTP/2."""
        host, port = self.world.endpoint.split(":")
        with socket.create_connection((host, int(port)), 5.0) as raw:
            preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            raw.sendall(preface * chance.randrange(2) + chance.randbytes(chance.randrange(300)))
        self.codes["garbage"] += 1

    def close(self) -> None:
        """End all calls."""
        for call_open in self.half_open:
            self._close(*call_open)
        self.channel.close()


def megabytes() -> float:
    """The largest memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Target:
    """A server, a trainer that works there, and the attacker's own id, None if it has none."""

    def __init__(self, kind: type[World], trainers: int, own: int | None, folder: str) -> None:
        patient = FAST | {
            "policy": "wait",
            "lost_after": 60.0,
            "save_dir": folder,
            "deadline": 3600.0,
        }
        settings = replace(Settings.from_env({}, patient), security=TOKEN)
        self.world, self.own = kind(trainers, settings), own
        self.world.server.sums._deadline = 0.02  # a call for a sum of another server waits
        self.trainer = None if own == 0 else self.world.trainer(0)

    def work(self) -> None:
        """Let the trainer make a step. AssertionError if it fails or is changed."""
        endpoint, trainer = self.world.endpoint, self.trainer
        if trainer is None:
            return
        if isinstance(self.world, Delayed):
            trainer.send(["g"], [endpoint], [np.zeros(SIZE, np.float32)], None, 0, False, True)
            assert trainer.read(endpoint, ["w"])[0].shape == (SIZE,)
            return
        send(trainer, endpoint, 1.0)
        steps = trainer.step
        assert (receive(trainer, endpoint) == -steps).all(), "a step was changed"

    def end(self) -> None:
        """The trainer completes. AssertionError if the server does not end then, or has failed."""
        if self.trainer is not None and self.own is None:
            self.trainer.complete()
            self.trainer.leave()
            self.world.thread.join(10)
            assert not self.world.thread.is_alive() and not self.world.errors, self.world.errors
        else:
            assert self.world.thread.is_alive(), self.world.errors
            if self.trainer is not None:
                self.trainer.close()
            self.world.end()


TARGETS: tuple[tuple[type[World], int, int | None], ...] = (
    (World, 1, None),
    (World, 1, 0),
    (Delayed, 2, 1),
)
"""Servers: the only trainer works; the only one is the attacker's; one works, one is the
attacker's, in an asynchronous job.
"""


def attack(count: int, token: bool, seed: int = 0) -> Counter[str]:
    """Make `count` hostile calls; return how many ended with each status code.

    Raises AssertionError if a server fails, sends what it must not, hangs, grows, or does not serve
    its trainer meanwhile.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        targets = [Target(*settings, folder) for settings in TARGETS]
        for target in targets:
            stack.callback(target.world.end)
        security = TOKEN if token else Security()
        attackers = [Attacker(t.world, security, t.own if token else None) for t in targets]
        before = 0.0
        for number in range(count):
            chance.choice(attackers).attack(chance)
            if number % max(1, count // 20) == 0:
                for target in targets:
                    target.work()
            if number == count // 10:
                before = megabytes()
        for attacker in attackers:
            attacker.close()
        for target in targets:
            target.work()
            target.end()
    assert megabytes() - before < MAX_GROWTH, f"memory grew by {megabytes() - before:.0f} MB"
    return sum((attacker.codes for attacker in attackers), Counter[str]())


def main(arguments: Sequence[str]) -> int:
    """Run the attack; AssertionError if a server misbehaved."""
    parser = argparse.ArgumentParser(prog="attack.py wire", description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="calls of each kind (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other calls")
    options = parser.parse_args(arguments)
    for token in (True, False):
        started = time.monotonic()
        codes = attack(options.count, token, options.seed)
        kind = "with" if token else "without"
        seconds = time.monotonic() - started
        print(
            f"{options.count} calls {kind} the token in {seconds:.0f} s: {dict(codes)}", flush=True
        )
    return 0
