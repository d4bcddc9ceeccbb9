"""Monitors of ranks: what their threads do when they end."""

from threading import current_thread

from runtime.collective.monitor import Monitor
from runtime.collective.record import RankRecord


class Store:
    """Keeps records, and ends the monitor in the thread that reads them."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.monitor: Monitor | None = None

    def set(self, key: str, text: str) -> None:
        """Keep a record."""
        self.texts[key] = text.encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return the records; the monitor's own thread also ends the monitor."""
        if self.monitor is not None and current_thread().name.startswith("heartbeat"):
            self.monitor.leave("ValueError: lost")
        return [self.texts[key] for key in keys]


def test_a_thread_that_collects_its_own_rings_publishes_their_end() -> None:
    store = Store()
    monitor = Monitor("ring", RankRecord(0), 1, store)
    store.monitor = monitor
    monitor.start()
    monitor.wake()
    monitor._thread.join(10.0)
    assert not monitor._thread.is_alive() and not monitor.lost
    record = RankRecord.parse(store.texts["record/ring/0"])
    assert record.has_left and record.failure == "ValueError: lost"
