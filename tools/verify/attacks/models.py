"""Damaged model files: rejected with a typed error, or read, compiled and run within limits.

The cases are those of `tools/verify/fuzz_files.py`, including hostile strings. They run in
processes with a memory limit; a case that takes too long, crashes, raises anything other than a
typed error or tries to execute, write or call something fails the attack.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from tools.verify import fuzz_files

CASES = 7_500
"""Cases by default, two of five of them programs."""


def main(arguments: Sequence[str]) -> int:
    """Run the attack; return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="attack.py models", description=__doc__)
    parser.add_argument("--count", type=int, default=CASES, help="how many cases (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    arguments = ["--count", str(options.count), "--seed", str(options.seed), "--compile", "--run"]
    code = fuzz_files.main(arguments)
    print(f"{time.perf_counter() - start:.0f} s")
    return code
