"""`fluid.communicator.Communicator`: sends gradients in the background."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from compiler.support.settings.paddle import (
    FLAGS_communicator_max_merge_var_num,
    FLAGS_communicator_send_queue_size,
)
from compiler.support.settings.setting import Setting
from fluid.distributed.job import GEO_STEPS, TrainerJob
from fluid.distributed.sharding import DistributedMode
from fluid.framework import Program
from fluid.parameter_server.sessions import session_for
from fluid.transpiler.distribute.geo import DELTA
from runtime.errors import WireError

__all__ = ["Communicator", "DistributedMode"]


class Communicator:
    """Background sender of the values that a trainer's program passes to `send`.

    `mode` is a `DistributedMode`; default: that of the program. `kwargs` may contain
    `geo_need_push_nums`, the steps between two exchanges of GEO, and `envs`
    `communicator_max_merge_var_num` and `communicator_send_queue_size`: the maximum number of
    gradients of a variable that are merged and queued. A program that does not communicate with
    servers has nothing to send, which is a warning. Raises TypeError for anything but a program.
    """

    def __init__(
        self,
        program: Program,
        mode: DistributedMode | None = None,
        kwargs: Mapping[str, str | float | None] | None = None,
        envs: Mapping[str, str | float | None] | None = None,
    ) -> None:
        _expect_program(program)
        session = session_for(program)
        if session is None:
            warnings.warn(
                "nothing is sent: the program does not communicate with servers; "
                "pass what get_trainer_program returns",
                stacklevel=2,
            )
        job = program.job
        by_default = job.plan.mode if isinstance(job, TrainerJob) else DistributedMode.ASYNC
        self._session = session
        self._mode = by_default if mode is None else mode
        self._steps = int((kwargs or {}).get("geo_need_push_nums") or _geo_steps(program))
        self._max_merged = _setting(FLAGS_communicator_max_merge_var_num, envs or {})
        self._waiting = _setting(FLAGS_communicator_send_queue_size, envs or {}, self._max_merged)

    def start(self) -> None:
        """Start sending. A second call is ignored with the reference's warning."""
        if self.is_running():
            return
        if self._session is not None and self._mode is DistributedMode.GEO:
            self._session.start_geo(self._steps, DELTA)
        elif self._session is not None and self._mode is not DistributedMode.SYNC:
            self._session.start_merging(self._max_merged, self._waiting)
        self._started = True

    def stop(self) -> None:
        """Send what is queued and stop. Raises WireError if a server does not answer."""
        if self._session is not None and self._session.communicator is not None:
            self._session.communicator.stop()
            self._session.communicator = None
        self._started = False

    def is_running(self) -> bool:
        """Return whether it is started and not stopped."""
        running = None if self._session is None else self._session.communicator
        return self._started and (running is None or bool(running.is_running))

    _started = False


def _expect_program(program: object) -> None:
    if not isinstance(program, Program):
        raise TypeError(f"Communicator takes a Program, not {type(program).__name__}")


def _geo_steps(program: Program) -> int:
    """Return the steps between two exchanges from the settings of `transpile`."""
    return program.job.geo_steps if isinstance(program.job, TrainerJob) else GEO_STEPS


def _setting(
    setting: Setting[int], envs: Mapping[str, str | float | None], other: int | None = None
) -> int:
    """Return a setting of the communicator, by `envs` or the environment; WireError if invalid."""
    given = envs.get(setting.name.removeprefix("FLAGS_"))
    environ = {setting.name: str(given)} if given else None
    return setting.read_or(setting.default if other is None else other, environ, WireError)
