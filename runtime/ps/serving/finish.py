"""The end of a job: no server exits before the others can, so a trainer finds all of them or none.

A trainer that is killed between the answers of two servers is restarted and completes again;
servers that have its answer keep serving until then. With policy `wait`, servers also wait for the
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
NOTIFY_SECONDS = 0.5
"""Timeout for notifying another server that the trainers of this one have completed."""


class Finish:
    """Decides when one server of a job may exit. `hear` may be called by any thread."""

    def __init__(
        self, endpoints: Sequence[str], number: int, peers: Peers, settings: Settings
    ) -> None:
        self._endpoint = endpoints[number]
        self._others = [each for each in endpoints if each != self._endpoint]
        self._peers, self._settings = peers, settings
        self._notified: set[str] = set()
        self._heard: set[str] = set()
        self._since: float | None = None
        self._together: float | None = None

    @property
    def awaits_ends(self) -> bool:
        """Whether trainer processes must announce their exit (`Members.leave`)."""
        return self._settings.policy == "wait"

    def hear(self, endpoint: str) -> None:
        """Record that all trainers have completed at another server. WireError if it is unknown."""
        if endpoint not in self._others:
            raise WireError(f"{endpoint} is not another server of this job")
        self._heard.add(endpoint)

    def is_over(self, members: Members) -> bool:
        """Whether this server may exit now; polled."""
        if not members.all_completed:
            self._since = self._together = None
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
        for endpoint in self._others:
            if endpoint not in self._notified:
                self._notify(endpoint)
        missing = [e for e in self._others if e not in self._notified or e not in self._heard]
        if missing and waited > self._settings.reconnect:
            log.warning("server %s ends without %s", self._endpoint, ", ".join(missing))
            return True
        return not missing

    def _notify(self, endpoint: str) -> None:
        header = {"do": "finished", "endpoint": self._endpoint}
        try:
            self._peers.call(endpoint, header, seconds=NOTIFY_SECONDS)
        except WireError:
            return
        self._notified.add(endpoint)
