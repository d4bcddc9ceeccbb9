"""Environment variables that define the role of a process, with their error messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """A variable: its name, the expected value, and the launcher that usually sets it."""

    name: str
    example: str
    setter: str

    def read(self, environ: Mapping[str, str]) -> str:
        """The value. Raises ValueError if the variable is unset or empty."""
        value = environ.get(self.name, "").strip()
        if not value:
            raise self.error("not set")
        return value

    def read_number(self, environ: Mapping[str, str], least: int = 0) -> int:
        """The value as an integer of at least `least`. Raises ValueError."""
        text = self.read(environ)
        if not text.isdecimal() or int(text) < least:
            raise self.error(repr(text))
        return int(text)

    def read_endpoints(self, environ: Mapping[str, str]) -> list[str]:
        """The value as distinct comma-separated endpoints. Raises ValueError."""
        found = [each.strip() for each in self.read(environ).split(",")]
        if len(set(found)) != len(found) or not all(map(is_endpoint, found)):
            raise self.error(repr(",".join(found)))
        return found

    def read_choice(self, environ: Mapping[str, str], choices: Sequence[str]) -> str:
        """The value as one of `choices`. Raises ValueError."""
        found = self.read(environ)
        if found not in choices:
            raise self.error(repr(found))
        return found

    def error(self, got: str) -> ValueError:
        """Build the error of a value: the variable, the expected value, and who usually sets it."""
        return ValueError(
            f"environment variable {self.name} is {got}, expected {self.example}; "
            f"it is usually set by {self.setter}"
        )


def is_endpoint(text: str) -> bool:
    """Whether a text is `host:port`.

    >>> is_endpoint("127.0.0.1:6170"), is_endpoint("127.0.0.1"), is_endpoint("a:99999")
    (True, False, False)
    """
    host, colon, port = text.rpartition(":")
    return bool(host and colon) and port.isdecimal() and 0 < int(port) < 1 << 16


_PS = "`fluid launch_ps`"
_COLLECTIVE = "`fluid launch`, or by `fluid run` under torchrun and srun"

ROLE = Variable("TRAINING_ROLE", "TRAINER or PSERVER", _PS)
SERVERS = Variable("PADDLE_PSERVERS_IP_PORT_LIST", "different host:port with commas between", _PS)
WORKERS = Variable("PADDLE_TRAINERS_NUM", "the number of trainers, from 1", _PS)
WORKER = Variable("PADDLE_TRAINER_ID", "this trainer's number, from 0", _PS)
HOST = Variable("POD_IP", "this server's host, as in PADDLE_PSERVERS_IP_PORT_LIST", _PS)
PORT = Variable("PADDLE_PORT", "this server's port, as in PADDLE_PSERVERS_IP_PORT_LIST", _PS)
SERVER = Variable("PADDLE_PSERVER_ID", "this server's number, from 0", _PS)

RANK = Variable("PADDLE_TRAINER_ID", "this trainer's number, from 0", _COLLECTIVE)
COLLECTIVE_ROLE = Variable("PADDLE_TRAINING_ROLE", "TRAINER", _COLLECTIVE)
ENDPOINTS = Variable(
    "PADDLE_TRAINER_ENDPOINTS", "different host:port with commas between", _COLLECTIVE
)
CURRENT = Variable("PADDLE_CURRENT_ENDPOINT", "one of PADDLE_TRAINER_ENDPOINTS", _COLLECTIVE)
TRAINERS = Variable(
    "PADDLE_TRAINER_ENDPOINTS", "different host:port with commas between, one for each trainer", _PS
)
MEETING = Variable(
    "PADDLE_GLOO_ENDPOINT", "the host:port at which all processes meet, on trainer 0's machine",
    "`fluid launch_ps`",
)  # fmt: skip
