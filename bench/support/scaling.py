"""A cost model of data-parallel steps: bytes, bandwidth and latency to seconds.

A ring all-reduce of n bytes between k ranks has 2·(k - 1) consecutive messages of n/k bytes.
Buckets are reduced consecutively, each once its gradients are computed; communication that is not
finished when the backward pass ends is exposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BACKWARD = 2 / 3
"""Fraction of a step spent in backward: two matrix products for each one in forward."""


@dataclass(frozen=True)
class Network:
    """`latency` in seconds of a message, `bandwidth` in bytes per second between two ranks."""

    latency: float
    bandwidth: float

    def all_reduce(self, nbytes: float, ranks: int) -> float:
        """Seconds of an all-reduce.

        >>> round(Network(1e-4, 1e9).all_reduce(1e6, 2), 6)
        0.0012
        """
        return 2 * (ranks - 1) * (self.latency + nbytes / ranks / self.bandwidth)


def fitted(seconds: Mapping[int, float]) -> Network:
    """Fit a network to measured times between two ranks, by bytes.

    Relative differences are minimised, so that small messages determine the latency.

    >>> found = fitted({1000: 2.01e-4, 1000000: 1.2e-3})
    >>> round(found.latency, 6), round(found.bandwidth / 1e9, 2)
    (0.0001, 1.0)
    """
    sizes, times = np.array(list(seconds), float), np.array(list(seconds.values()))
    terms = np.stack([np.full(len(sizes), 2.0), sizes], axis=1) / times[:, np.newaxis]
    latency, per_byte = np.linalg.lstsq(terms, np.ones(len(sizes)), rcond=None)[0]
    return Network(max(float(latency), 0.0), 1 / max(float(per_byte), 1e-15))


def exposed(compute: float, buckets: Sequence[float], network: Network, ranks: int) -> float:
    """Seconds in which a rank waits for its buckets (bytes, in the order they are computed).

    Gradients are computed at a uniform rate.

    >>> exposed(3.0, [1e9, 1e9], Network(0.0, 1e9), 2)
    1.0
    """
    ready, done = compute * (1 - BACKWARD), 0.0
    for nbytes in buckets:
        ready += compute * BACKWARD * nbytes / sum(buckets)
        done = max(done, ready) + network.all_reduce(nbytes, ranks)
    return max(done - compute, 0.0)
