"""Feeds of a data-parallel run, split into one feed of arrays per device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeGuard

from compiler.errors import did_you_mean
from fluid.data_parallel.split_feeds import Feed, split_feed
from fluid.framework import Program
from fluid.recording.narrowing import is_sequence
from fluid.running.feeds import feed_arrays
from runtime.prefetching_reader import EOFException

__all__ = ["device_feeds"]

OneFeed: TypeAlias = Mapping[str, object]


def device_feeds(
    program: Program, feed: object, devices: int, kind: str = "CPU", partial: bool = False
) -> list[Feed]:
    """The arrays fed to each device, including those of the program's readers.

    A dict is split by rows, a list has one dict per device. With `partial`, for programs
    that compute no gradients, there may be fewer shares than devices. Raises ValueError for a list
    of another length, for a feed that is neither, and for an unknown variable name; TypeError for
    a list of anything but dicts; FeedError (EnforceNotMet) for too few rows; EOFException if a
    reader has too few batches left.
    """
    if program.readers:
        shares = _feed_with_batches(program, feed, devices, partial)
        return [feed_arrays(program, share) for share in shares]
    if feed is None or is_feed(feed):
        _expect_known(program, feed or ())
        return split_feed(program, feed_arrays(program, feed), devices, kind, partial)
    return [feed_arrays(program, share) for share in _listed(program, feed, devices, partial)]


def _listed(program: Program, feed: object, devices: int, partial: bool) -> list[OneFeed]:
    """A list of dicts, one per device."""
    if not is_sequence(feed):
        raise ValueError(f"feed must be a dict or a list of dicts, not {type(feed).__name__}")
    if len(feed) != devices and not (partial and 0 < len(feed) < devices):
        raise ValueError(
            f"feed is a list of {len(feed)}, but the number of devices is {devices}: it needs one "
            "dict for each device"
        )
    shares: list[OneFeed] = []
    for device_feed in feed:
        if not is_feed(device_feed):
            kind = type(device_feed).__name__
            raise TypeError(f"Each element of feed list should be a dict, not {kind}")
        _expect_known(program, device_feed)
        shares.append(device_feed)
    return shares


def is_feed(feed: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a feed is one mapping; `feed_arrays` checks its names."""
    return isinstance(feed, Mapping)


def _expect_known(program: Program, names: Iterable[object]) -> None:
    """Raise ValueError for a name that is no variable of the program."""
    variables = program.blocks[0].vars
    for name in names:
        if isinstance(name, str) and name not in variables:
            hint = did_you_mean(name, variables)
            raise ValueError(f"feed: var {name} not in this block; {hint}".rstrip("; "))


def _feed_with_batches(
    program: Program, feed: object, devices: int, partial: bool
) -> list[OneFeed]:
    """A feed for each device, each with its own batch from every reader."""
    shares: Sequence[OneFeed] = [dict[str, object]()] * devices
    if is_feed(feed) and feed:
        shares = split_feed(program, feed_arrays(program, feed), devices)
    elif feed:
        shares = _listed(program, feed, devices, False)
    results: list[OneFeed] = []
    for device_feed in shares:
        try:
            results.append(program.feed_with_batches(device_feed))
        except EOFException:
            if not results or not partial or any(reader.drop_last for reader, _ in program.readers):
                raise
            break
    return results
