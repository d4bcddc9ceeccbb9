"""The thresholds from which on generated code takes another path, and which ops depend on each.

python tools/verify/thresholds.py [--show]

An op depends on a threshold if code generation for one of its samples, forward or backward,
compares a size with it. Writes tools/verify/results/thresholds.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.codegen.target import Target
from compiler.codegen.triton.target import TritonTarget
from compiler.errors import CompileError
from compiler.freeze import freeze
from compiler.ir.opdef import find
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from compiler.support.thresholds import all_thresholds, observed
from tests.ops.compiled_samples import wanted
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import NOBODY, Case, backward, forward, graph_of, is_array

RESULTS = Path(__file__).parent / "results" / "thresholds.md"


def cases(sample: Sample) -> Iterator[Case]:
    """The op of a sample, and its gradient."""
    yield forward(sample)
    if sample.grads and find(sample.op).grad_class:
        yield backward(sample)


def compared(case: Case, target: Target) -> set[str]:
    """The thresholds that the code of a case is generated with, with fixed and with named sizes."""
    with observed() as names:
        for batch in {NOBODY, _batch(case)}:
            graph, _ = graph_of(case, wanted(case), batch)
            with suppress(CompileError):
                run_passes(graph, pipeline(Options(), target), Context())
                target.emit(freeze(graph))
    return names


def _batch(case: Case) -> int:
    """The size of the first axis of the first array; NOBODY if there is none."""
    arrays = (array for array in case.values.values() if is_array(array) and array.ndim)
    return next((len(array) for array in arrays), NOBODY)


def family(op: str) -> str:
    """The module of an op, below `compiler.ops`."""
    return find(op).__module__.removeprefix("compiler.ops.").replace(".", "/")


def families() -> Mapping[str, set[str]]:
    """The families of ops that compare sizes with each threshold."""
    families_by_threshold = defaultdict[str, set[str]](set)
    for target in (NativeTarget(), NumpyTarget(), TritonTarget()):
        for sample in samples():
            if not find(sample.op).is_composite:
                for case in cases(sample):
                    for name in compared(case, target):
                        families_by_threshold[name].add(family(sample.op))
    return families_by_threshold


def table(found: Mapping[str, set[str]], shows: bool) -> list[str]:
    """The lines of the table; with `shows`, the families of each threshold."""
    head = ["threshold", "value", "in tests", "unit", "effect", "families of ops"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, threshold in all_thresholds().items():
        users = sorted(found[name])
        shown = f"{len(users)}: {', '.join(users)}" if shows and users else f"{len(users)}"
        cells = [
            name,
            f"{threshold.default:,}",
            f"{threshold.small:,}",
            threshold.unit,
            threshold.effect,
            shown,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="list the families of ops")
    options = parser.parse_args()
    families_found = families()
    print("\n".join(table(families_found, options.show)))
    RESULTS.write_text("\n".join(table(families_found, shows=False)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
