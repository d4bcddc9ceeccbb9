"""A rank of `fluid launch` that prints its PID and all-reduces forever."""

from __future__ import annotations

import os

import numpy as np

from runtime.collective import Rings


def main() -> None:
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    rings = Rings()
    rings.create_id("id", rank, endpoints)
    rings.init_ring(0, "id", len(endpoints), rank)
    print("rank", rank, "ready", os.getpid(), flush=True)
    while True:
        rings.all_reduce(0, "x", "sum", np.ones(1 << 16, np.float32))


if __name__ == "__main__":
    main()
