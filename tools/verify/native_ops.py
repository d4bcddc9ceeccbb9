"""How many ops have native code, and the reasons of the others."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections import Counter

from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import samples
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, Case, backward, forward, graph_of


def reasons(case: Case) -> list[str]:
    """Why a case has steps in NumPy; empty if all of it is native."""
    target, context = NativeTarget(), Context()
    outputs = [s for s, value in case.results.items() if any(v.size for v in listed(value))]
    graph, _ = graph_of(case, outputs, NOBODY)
    run_passes(graph, pipeline(Options(), target), context)
    fallbacks = [why for op in graph.ops() if (why := target.supports(op))]
    return fallbacks or list(target.module_writer(freeze(graph)).fallbacks.values())


def main() -> None:
    """Print the ops with native code for some sample, and the reasons of the others."""
    native: set[str] = set()
    others: dict[str, str] = {}
    cases = [forward(sample) for sample in samples()]
    cases += [backward(sample) for sample in DIFFERENTIATED]
    for case in cases:
        why = reasons(case)
        if why:
            others[case.op] = why[0]
        else:
            native.add(case.op)
    left = {op: why for op, why in others.items() if op not in native}
    partly = {op: why for op, why in others.items() if op in native}
    print(f"{len(native)} of {len(native) + len(left)} ops have native code for a sample")
    for why, count in Counter(left.values()).most_common():
        ops = ", ".join(sorted(op for op in left if left[op] == why))
        print(f"{count:4}  {why}: {ops}")
    print(f"{len(partly)} of them run other samples in NumPy")
    for why, count in Counter(partly.values()).most_common():
        print(f"{count:4}  {why}: {', '.join(sorted(op for op in partly if partly[op] == why))}")


if __name__ == "__main__":
    assert find("relu")
    main()
