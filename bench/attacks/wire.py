"""Malformed calls to a parameter server: it answers or closes, and keeps serving others."""

from __future__ import annotations

import argparse
import random
import resource
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from runtime.ps.settings import Settings
from runtime.ps.wire.frames import Kind, new_frame, text_frame
from runtime.ps.wire.packets import pack
from runtime.ps.wire.security import Security
from runtime.ps.wire.transport import grpc, open_channel, stream_call, unary_call
from tests.runtime.ps.world import FAST, World, receive, send

NAMES = ("Call", "Fetch", "Exchange", "Nothing")
DOES = ("hello", "beat", "complete", "sum", "push", "read", "rows", "save", "format", "")
HOSTILE = (
    None,
    -1,
    1 << 70,
    3.5,
    "",
    "w",
    "../../x",
    [],
    [1 << 62, 1 << 62],
    ["w"],
    {"a": 1},
    True,
)
SECONDS = 2.0


def packet(chance: random.Random) -> bytes:
    """A call whose fields have values of any kind; sometimes it claims a wrong size."""
    fields = ("trainer", "name", "names", "step", "sender", "number", "part", "parts", "dtype",
              "shape", "rows", "folder", "adds")  # fmt: skip
    header = {each: chance.choice(HOSTILE) for each in fields if chance.random() < 0.7}
    does = [each for each in DOES if each not in ("complete", "save")]
    message = pack({"do": chance.choice(does), **header}, chance.randbytes(chance.randrange(64)))
    if chance.random() < 0.2:
        message = message[:4] + struct.pack("<I", chance.randrange(1 << 32)) + message[8:]
    return message


def frame(chance: random.Random) -> bytes:
    """A message of an exchange with any kind, trainer, step, offset and size."""
    size = chance.choice((0, 1, 31, 4000, 4064))
    kind = chance.choice((*Kind, 0, 77))
    numbers = [chance.choice((0, 1, 7, 1 << 40, (1 << 64) - 1)) for _ in range(2)]
    message, view = new_frame(kind, chance.choice((0, 1, 9, 65535)), *numbers, size)
    view[:] = np.frombuffer(chance.randbytes(size), np.uint8)
    return message if chance.random() < 0.8 else message[: chance.randrange(len(message) + 1)]


def hello(chance: random.Random) -> bytes:
    """The first message of an exchange, often valid."""
    texts = ('{"names": ["w"]}', '{"names": ["unknown"]}', "[]", "{", '{"names": 3}', "[" * 5000)
    return text_frame(Kind.HELLO, 1, 0, chance.choice(texts))


def messages(chance: random.Random) -> tuple[str, list[bytes]]:
    """The name of a call and the messages to send."""
    name = chance.choice(NAMES)
    if name == "Exchange":
        count = chance.randrange(4)
        first = [hello(chance)] if chance.random() < 0.7 else []
        return name, first + [frame(chance) for _ in range(count)]
    made = packet(chance) if chance.random() < 0.7 else chance.randbytes(chance.randrange(200))
    return name, [made]


def fire(channel: Any, metadata: Any, name: str, sent: list[bytes]) -> str:
    """Send messages; return the status code."""
    rpc = grpc()
    try:
        if name == "Call":
            unary_call(channel, name)(sent[0], timeout=SECONDS, metadata=metadata)
        else:
            list(stream_call(channel, name)(iter(sent), timeout=SECONDS, metadata=metadata))
    except rpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def attack(count: int, seed: int = 0) -> dict[str, int]:
    """Send `count` malformed calls while a valid trainer makes steps; return the status codes.

    Raises AssertionError if the server is changed by them, stops serving or grows.
    """
    chance = random.Random(seed)
    security = Security(token="secret")
    patient = FAST | {"policy": "wait", "lost_after": 60.0}
    world = World(1, replace(Settings.from_env({}, patient), security=security))
    codes: dict[str, int] = {}
    trainer = world.trainer(0)
    channel = open_channel(world.endpoint, security)
    grpc().channel_ready_future(channel).result(10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        metadata = () if chance.random() < 0.2 else security.metadata()
        name, sent = messages(chance)
        code = fire(channel, metadata, name, sent)
        assert metadata or code in ("UNAUTHENTICATED", "UNIMPLEMENTED"), (code, name)
        codes[code] = codes.get(code, 0) + 1
        if number % max(1, count // 20) == 0:
            send(trainer, world.endpoint, 1.0)
            steps = trainer.step
            assert (receive(trainer, world.endpoint) == -steps).all(), "a step was changed"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 200, f"memory grew by {grown:.0f} MB"
    trainer.complete()
    trainer.leave()
    world.thread.join(10)
    assert not world.thread.is_alive() and not world.errors, world.errors
    channel.close()
    return codes


def main(arguments: Sequence[str]) -> int:
    """Run the attack; AssertionError if the server misbehaved."""
    parser = argparse.ArgumentParser(prog="attack.py wire", description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="how many calls (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other calls")
    given = parser.parse_args(arguments)
    started = time.monotonic()
    codes = attack(given.count, given.seed)
    print(f"{given.count} calls in {time.monotonic() - started:.0f} s: {codes}")
    return 0
