"""The end of a job: no server exits before the others can, so a trainer finds all of them or none.

A trainer that is killed between the answers of two servers is restarted and completes again;
servers that have its answer keep serving until then. A server asks each of the others itself: what
any peer says about one of them is not believed. With policy `wait`, servers also wait for the
exit of the processes that have completed, because one of these may be killed and restarted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from runtime.errors import WireError
from runtime.ps.serving.members import Members
from runtime.ps.settings import Settings
from runtime.ps.wire.peers import Peers

log = logging.getLogger("fluid.ps")
ASK_SECONDS = 0.5
"""Timeout of the question to another server whether its trainers have completed, and interval."""


class Shutdown:
    """Decides when one server of a job may exit. `asked` may be called by any thread."""

    def __init__(
        self, endpoints: Sequence[str], number: int, peers: Peers, settings: Settings
    ) -> None:
        self._endpoint = endpoints[number]
        self._others = [endpoint for endpoint in endpoints if endpoint != self._endpoint]
        self._peers, self._settings = peers, settings
        self._finished: set[str] = set()
        self._informed: set[str] = set()
        self._asked_at = 0.0
        self._since: float | None = None
        self._together: float | None = None

    @property
    def awaits_ends(self) -> bool:
        """Whether trainer processes must announce their exit (`Members.leave`)."""
        return self._settings.policy == "wait"

    def asked(self, endpoint: str) -> bool:
        """Whether all trainers have completed here, for another server; it is informed then.

        Raises WireError if there is no such server.
        """
        if endpoint not in self._others:
            raise WireError(f"{endpoint[:200]!r} is not another server of this job")
        self._asked_at = 0.0  # the other one asks because it has finished: ask it soon
        if self._since is None:
            return False
        self._informed.add(endpoint)
        return True

    def is_over(self, members: Members) -> bool:
        """Whether this server may exit now; polled."""
        if not members.all_completed:
            self._since = self._together = None
            self._informed.clear()
            return False
        now = time.monotonic()
        self._since = self._since or now
        if self._together is None and not self._others_finished(now - self._since):
            return False
        self._together = self._together or now
        waits = self.awaits_ends and not members.all_left
        return not waits or now - self._together > self._settings.lost_after

    def _others_finished(self, waited: float) -> bool:
        """Whether every other server knows that this one has finished, and has finished itself."""
        if time.monotonic() - self._asked_at > ASK_SECONDS:
            self._finished.update(e for e in self._others if self._has_finished(e))
            self._asked_at = time.monotonic()
        both = self._finished & self._informed
        missing = [number for number in self._others if number not in both]
        if missing and waited > self._settings.reconnect:
            log.warning("server %s ends without %s", self._endpoint, ", ".join(missing))
            return True
        return not missing

    def _has_finished(self, endpoint: str) -> bool:
        """Ask another server whether its trainers have completed, unless it has said so before."""
        if endpoint in self._finished:
            return True
        header = {"do": "finished", "endpoint": self._endpoint}
        try:
            answer, _ = self._peers.call(endpoint, header, seconds=ASK_SECONDS)
        except WireError:
            return False
        return answer.get("completed") is True
