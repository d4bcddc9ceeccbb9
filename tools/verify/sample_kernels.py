"""Builds the kernels of op samples for a GPU that need not be present: failures and spills.

    python tools/verify/sample_kernels.py cuda:90 --only roi interp

The first sample of each op, forward and backward, is built with its sizes and with a symbolic batch
size; with --all every sample is. The folder of --cache has the kernels built before.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.pop("TRITON_INTERPRET", None)

import numpy as np

from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import gpus
from compiler.codegen.module import Module
from compiler.codegen.triton.target import TritonTarget
from compiler.errors import CompileError
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import samples
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, Case, backward, forward, graph_of

TARGET = TritonTarget()
LIMIT = 2 * 10**9
"""Maximum bytes of cached kernels."""


def cases(only: list[str], all_samples: bool) -> Iterator[Case]:
    """The calls of samples whose ops have kernels, with one of `only` in their names."""
    seen: set[str] = set()
    for make, chosen in ((forward, samples()), (backward, DIFFERENTIATED)):
        for sample in chosen:
            op = find(sample.op)
            kind = op.kind if make is forward else op.grad_class.kind
            wanted = not only or any(part in kind for part in only)
            if op.is_random and make is forward and "Key" not in sample.inputs:
                continue
            if wanted and TARGET.writes(find(kind)) and (all_samples or kind not in seen):
                seen.add(kind)
                yield make(sample)


def modules(case: Case) -> Iterator[Module]:
    """The code of a call, also with a symbolic batch size; none for host fallback."""
    first = next((v for v in case.values.values() if isinstance(v, np.ndarray) and v.ndim), [])
    wanted = [s for s, value in case.results.items() if any(v.size for v in listed(value))]
    for batch in sorted({NOBODY, len(first)}):
        graph, _ = graph_of(case, wanted, batch)
        if not any(TARGET.supports(op) for op in graph.ops()):
            run_passes(graph, pipeline(Options(), TARGET), Context())
            yield TARGET.emit(freeze(graph))


def main() -> None:
    """Build, and print how many kernels there are and which of them spill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gpu", nargs="?", default="cuda:90")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of ops")
    parser.add_argument("--all", action="store_true", help="every sample, not the first of an op")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/fluid/samples")
    options = parser.parse_args()
    begun = time.perf_counter()
    wanted = [kernel for case in cases(options.only, options.all) for kernel in modules(case)]
    try:
        built = [
            kernel
            for kernels in build(wanted, gpus(options.gpu), options.cache, LIMIT)
            for kernel in kernels
        ]
    except CompileError as error:
        raise SystemExit(str(error)) from error
    for kernel in built:
        if kernel.code.spilled:
            print(f"{kernel.kernel}: {kernel.code.spilled} bytes do not fit into registers")
    seconds = time.perf_counter() - begun
    print(f"{len(built)} kernels of {len(wanted)} calls for {options.gpu} in {seconds:.1f} s")


if __name__ == "__main__":
    main()
