"""One rank that times all-reduces of several sizes, for `distributed.py --model`.

    ring_times.py RANK RANKS ENDPOINT ROUNDS BYTES...

Rank 0 prints the seconds of every round as JSON, by bytes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runtime.collective import Rings


def main() -> None:
    """Meet, warm up, measure."""
    rank, ranks, endpoint, rounds, *sizes = sys.argv[1:]
    rings, times_by_size = Rings(60.0), {}
    rings.create_id("times", int(rank), [endpoint], size=int(ranks))
    rings.init_ring(0, "times", int(ranks), int(rank))
    arrays = {size: np.zeros(int(size) // 4, "float32") for size in sizes}
    for _ in range(int(rounds) + 2):
        for size, array in arrays.items():
            rings.barrier(0, "before")
            start = time.perf_counter()
            rings.all_reduce(0, size, "sum", array)
            times_by_size.setdefault(size, []).append(time.perf_counter() - start)
    rings.close()
    if rank == "0":
        print(json.dumps({size: times[2:] for size, times in times_by_size.items()}))


if __name__ == "__main__":
    main()
