"""Steps a second of two trainers and two servers, beside Paddle 1.8.5 on the same machine.

    .venv/bin/python bench/parameter_server.py --reference ~/paddle18/bin/python

The two run by turns; the medians of all rounds are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.chaos import free_endpoints

ROOT = Path(__file__).resolve().parents[1]
STEPS = {"fit_a_line": 400, "two_layers_wide": 100}
SECONDS = 120.0


def measured(python: str, module: str, net: str) -> float:
    """Steps a second of the slower trainer of one job; nan where it did not end."""
    endpoints = ",".join(free_endpoints(2))
    known = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "GLOG_v": "0"}
    known |= {"PYTHONPATH": str(ROOT), "GRPC_VERBOSITY": "NONE", "PYTHONDONTWRITEBYTECODE": ""}
    worker = str(ROOT / "bench" / "workers" / "ps_role.py")

    def start(role: str, number: int) -> subprocess.Popen[str]:
        command = [python, worker, module, role, str(number), endpoints, net, str(STEPS[net])]
        return subprocess.Popen(
            command, env={**os.environ, **known}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    servers, trainers = [start("server", n) for n in (0, 1)], [start("trainer", n) for n in (0, 1)]
    try:
        texts = [trainer.communicate(timeout=SECONDS)[0].strip() for trainer in trainers]
        return min(float(text) for text in texts)
    except (subprocess.TimeoutExpired, ValueError):
        return float("nan")
    finally:
        for process in [*trainers, *servers]:
            if process.poll() is None:
                process.kill()
            process.communicate()


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", help="a Python 3.7 with paddlepaddle 1.8.5")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--net", choices=list(STEPS), action="append")
    given = parser.parse_args()
    for net in given.net or STEPS:
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(given.rounds):
            ours.append(measured(sys.executable, "fluid", net))
            if given.reference:
                theirs.append(measured(given.reference, "paddle.fluid", net))
        line = f"{net:16} {statistics.median(ours):8.1f} steps/s"
        if theirs:
            other = statistics.median(theirs)
            line += f", reference {other:8.1f}, ratio {statistics.median(ours) / other:.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
