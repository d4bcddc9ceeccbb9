"""How much of a folder of recorded op cases has kernels: cases all of whose ops do, and the rest.

    python bench/lowered.py RECORDED/ops

The folder holds index.json: for each case the op, and the inputs whose gradients were recorded.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from compiler.codegen.triton.target import TritonTarget
from compiler.ir.opdef import find


def missing(case: dict[str, Any]) -> list[str]:
    """The ops of a case, forward and backward, that have no kernels."""
    forward = find(case["op"])
    ops = [forward, *([forward.grad_class] if case["grad_of"] and forward.grad_class else [])]
    return [op.kind for op in ops if not TritonTarget().writes(op)]


def main() -> None:
    """Print how many cases are lowered, and the ops that the others lack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    cases = json.loads((parser.parse_args().folder / "index.json").read_text())
    found = [missing(case) for case in cases.values()]
    lacking = Counter(kind for kinds in found for kind in kinds)
    print(f"{sum(not kinds for kinds in found)} of {len(cases)} cases have kernels for all ops")
    print("\n".join(f"{kind}: {count}" for kind, count in sorted(lacking.items())))


if __name__ == "__main__":
    main()
