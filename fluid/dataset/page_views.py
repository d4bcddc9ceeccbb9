"""Page views: the samples of one search, and the positions of its advertisements.

Source: `data_feed.cc` and `data_set.cc` of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from compiler.ir.types import Array
from fluid.dataset.multi_slot import Sample

__all__ = ["PageView", "page_views", "rank_offsets"]

PageView = list[Sample]
"""The samples of one search."""

MAX_RANK = 3
RANKED = (222, 223)
"""The kinds of matches (`cmatch`) whose positions count."""


def page_views(samples: Iterable[Sample], by_search: bool = True) -> list[PageView]:
    """Group samples by the search in their log keys, in its order, or each sample by itself.

    Raises ValueError for ids that are not log keys.
    """
    ordered = sorted(samples, key=_search)
    if not by_search:
        return [[sample] for sample in ordered]
    return [list(group) for _, group in groupby(ordered, _search)]


def rank_offsets(views: Sequence[PageView]) -> Array:
    """The matrix of `rank_attention`, int32 [samples, 7].

    A row has the rank of its sample, then for each rank of the same page view that rank and the row
    of its sample; -1 stands for none.
    """
    rows: list[list[int]] = []
    for view in views:
        first, ranks = len(rows), [_rank(sample) for sample in view]
        for rank in ranks:
            row = [rank] + [-1] * (2 * MAX_RANK)
            for position, other in enumerate(ranks):
                if rank > 0 and other > 0:
                    row[2 * other - 1 : 2 * other + 1] = [other, first + position]
            rows.append(row)
    return np.array(rows, np.int32).reshape(-1, 2 * MAX_RANK + 1)


def _search(sample: Sample) -> int:
    return int(_log_key(sample)[16:32], 16)


def _rank(sample: Sample) -> int:
    """The position of an advertisement; -1 if it does not count."""
    key = _log_key(sample)
    match, rank = int(key[11:14], 16), int(key[14:16], 16)
    return rank if match in RANKED and 0 < rank <= MAX_RANK else -1


def _log_key(sample: Sample) -> str:
    if len(sample.id) < 32:
        raise ValueError(f"{sample.id!r} is no log key of 32 hexadecimal digits: set_parse_logkey")
    return sample.id
