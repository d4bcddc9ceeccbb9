"""Freed memory of the size of NumPy's temporaries is reused, unless the user set the allocator."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from runtime.memory.allocator import reuse_freed_blocks

def faults(count=200):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        np.zeros(30000) + 1.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
reuse_freed_blocks()
faults()
print(first, faults())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.confstr("CS_GNU_LIBC_VERSION") is None, reason="not glibc"
)
@pytest.mark.parametrize("setting", [None, "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"])
def test_temporaries_do_not_fault(setting: str | None) -> None:
    own = {} if setting is None else {setting: "131072"}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | own
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True
    )
    first, second = map(int, done.stdout.split())
    assert (second < 100) is (setting is None), (first, second)
