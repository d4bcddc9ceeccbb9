"""Connections of trainers' programs to their servers: one session a trainer and process."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from threading import RLock
from weakref import WeakSet

from compiler.ir.program import OpDesc
from fluid.distributed.job import ParameterServerJob, ProgramOfJob
from fluid.parameter_server.programs import exchanges, sessions
from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.training.trainer import Trainer

__all__ = ["complete", "open_session", "received", "release", "session_for", "trainer_step"]

_sessions: dict[tuple[int, tuple[str, ...]], Trainer] = sessions
_users: dict[Trainer, WeakSet[Hashable]] = {}
_completed: list[Trainer] = []
"""Trainers that have completed, whose servers wait for the end of this process."""
_lock = RLock()


def session_for(program: ProgramOfJob, user: Hashable = None) -> Trainer | None:
    """The session that a program of a trainer uses; None for a program that exchanges nothing.

    `user` is the Executor that runs it: when the last one has closed, the trainer has completed.
    """
    ops = list(exchanges(program))
    if not ops:
        return None
    endpoints = tuple(dict.fromkeys(endpoint for op in ops for endpoint in _endpoints(op)))
    number = max(int(op.attrs.get("trainer_id", 0)) for op in ops)
    job = program.job if isinstance(program.job, ParameterServerJob) else None
    with _lock:
        trainer = _known(number, endpoints, None if job is None else job.settings)
        trainer.subscribe(received(program))
        if user is not None:
            _users[trainer].add(user)
    return trainer


def open_session(endpoints: Iterable[str]) -> Trainer | None:
    """The open session of this process with some of these servers, if there is one."""
    wanted = set(endpoints)
    with _lock:
        return next(
            (t for (_, endpoints_of), t in _sessions.items() if wanted & set(endpoints_of)), None
        )


def trainer_step(program: ProgramOfJob) -> int:
    """The last step that the trainer of a program has made, where a restarted one continues.

    Raises ValueError for a program that exchanges nothing with servers.
    """
    session = session_for(program)
    if session is None:
        raise ValueError("the program exchanges nothing with servers, so it has no steps there")
    return session.step


def _known(number: int, endpoints: tuple[str, ...], given: Mapping[str, object] | None) -> Trainer:
    """The open session of a trainer with some of the same servers, or a new one."""
    for (trainer_number, others), trainer in _sessions.items():
        if trainer_number == number and not set(others).isdisjoint(endpoints):
            return trainer
    trainer = Trainer(number, endpoints, Settings.from_env(given=given))
    _sessions[number, endpoints] = trainer
    _users[trainer] = WeakSet()
    return trainer


def release(user: Hashable) -> None:
    """An Executor closes: a trainer whose programs no other one runs has completed."""
    for trainer in _released(user):
        _complete(trainer)


def _complete(trainer: Trainer) -> None:
    """Report to the servers that a trainer has completed, and later that its process ends."""
    trainer.complete()
    if trainer.awaits_end:
        _completed.append(trainer)


def _released(user: Hashable) -> list[Trainer]:
    """The sessions that nobody uses any more, once a user is gone."""
    released: list[Trainer] = []
    with _lock:
        for key, trainer in list(_sessions.items()):
            users = _users[trainer]
            if user in users:
                users.discard(user)
                if not users:
                    del _sessions[key], _users[trainer]
                    released.append(trainer)
    return released


def complete(program: ProgramOfJob, user: Hashable) -> None:
    """A trainer has completed, even one that has not run yet; other Executors use it no longer.

    Nothing is done for a program that exchanges nothing.
    """
    trainer = session_for(program, user)
    if trainer is None:
        return
    with _lock:
        for key in [key for key, session in _sessions.items() if session is trainer]:
            del _sessions[key]
        _users.pop(trainer, None)
    _complete(trainer)


@atexit.register
def _end() -> None:
    """At process exit, report completion to the servers, or failure after an error."""
    error = getattr(sys, "last_value", None)
    for trainer in list(_sessions.values()):
        try:
            if error is None:
                _complete(trainer)
            else:
                trainer.abort(f"{type(error).__name__}: {error}")
        except WireError as failed:
            print(f"trainer {trainer.number}: {failed}", file=sys.stderr)
    _sessions.clear()
    for trainer in _completed:
        trainer.leave()


def _endpoints(op: OpDesc) -> list[str]:
    named: list[Sequence[str]] = [op.attrs.get(name) or () for name in ("epmap", "endpoints")]
    return [str(name) for names in named for name in names]


def received(program: ProgramOfJob) -> dict[str, list[str]]:
    """The variables that a program receives, by server."""
    names_by_server: dict[str, list[str]] = {}
    for op in exchanges(program):
        if op.type == "recv":
            names = op.attrs.get("recv_varnames") or op.attrs.get("varnames") or op.outputs["Out"]
            for name, endpoint in zip(names, _endpoints(op), strict=True):
                names_by_server.setdefault(endpoint, []).append(str(name))
    return names_by_server
