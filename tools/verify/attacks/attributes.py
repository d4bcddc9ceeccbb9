"""Extreme and wrong attributes of every op: each must produce a result or a typed error.

Every attribute of the samples of every op, and of their gradient ops, is set to extreme values.
Each call is inferred, compiled for a target and run in a child process with limits of memory and
time; native kernels check the bounds of every load and store. Its result must equal that of the
op's reference implementation. Everything else fails: an error of another type than the project's,
an access out of bounds, a crash, a hang, a difference. Exit code 1 if one does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

import runtime
from bench.support.table import goal, table
from compiler.driver import compile_graph
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import OpDef, listed, type_of
from compiler.ir.opdef.type_inference import bind, infer_types
from compiler.ir.program import GRAD, OpDesc
from compiler.options import Options
from tools.verify.attacks.attribute_values import Call, Case, cases
from tools.verify.attacks.outcomes import (
    BOUNDS,
    CRASH,
    DIFFERS,
    HANG,
    LARGE,
    REFUSED,
    RESULT,
    TYPED,
    UNDERFLOW,
    UNTYPED,
    Outcome,
    attempted,
)  # fmt: skip
from tools.verify.fuzz_files import FAULTS
from tools.verify.support.children import Limits, call_in_children

KINDS = (RESULT, LARGE, UNDERFLOW, REFUSED, TYPED, BOUNDS, UNTYPED, DIFFERS, CRASH, HANG)
MOST_BYTES = {"numpy": 1 << 20, "native": 1 << 20, "triton": 1 << 15}
"""Maximum bytes of outputs for a case to be run; `large` ones are only compiled.

`data refused` counts results that are not compared because the data do not match the attributes:
the reference implementation rejects them, or a gradient op reads outputs of its forward op that
do not exist with these attributes. Kernels do not check data.
"""
TARGETS = ("numpy", "native", "triton")
SOURCE = "model.py:7"


def attempt(case: Case, target: str) -> Outcome:
    """Infer, compile and run a case in this process."""
    return attempted(lambda: _compared(case, target), FAULTS)


def _compared(case: Case, target: str) -> Outcome:
    op = OpDesc(case.call.op, {}, {}, case.attrs, SOURCE)
    defn = bind(op)
    graph, feed, fetched = _graph(case.call, defn, op)
    place = runtime.CUDAPlace(0) if target == "triton" else runtime.CPUPlace()
    options = Options(check=int(target == "native"))
    compute = runtime.load(compile_graph(graph, target=target, options=options).module, place)
    if any(_bytes(var) > MOST_BYTES[target] for var in graph.results):
        return Outcome(LARGE)
    results = compute(feed)
    if defn.is_random and "Key" not in case.call.values:
        return Outcome(RESULT)
    try:
        with np.errstate(all="ignore"):
            if not case.is_consistent():
                return Outcome(REFUSED, "outputs of the forward op with other attributes")
            wanted = defn.evaluate(case.call.values)
    except FAULTS as error:
        return Outcome(REFUSED, f"{type(error).__name__}: {error!s:.200}")
    wants = [want for slot in fetched for want in listed(wanted[slot])]
    outcome = _difference(results, wants)
    if outcome.failed and target == "native" and _underflows(defn, case.call.values):
        return Outcome(UNDERFLOW, outcome.text)
    return outcome


def _underflows(defn: OpDef, values: Mapping[str, Any]) -> bool:
    """Whether the reference implementation computes denormal numbers."""
    try:
        with np.errstate(all="ignore", under="raise"):
            defn.evaluate(values)
    except FloatingPointError:
        return True
    return False


def _graph(call: Call, defn: OpDef, op: OpDesc) -> tuple[Graph, dict[str, Any], list[str]]:
    """The graph of one op, its feed, and the slots that are fetched."""
    graph, feed, inputs = Graph(), dict[str, Any](), dict[str, Any]()
    for slot, value in call.values.items():
        arrays = [item for item in listed(value) if item is not None]
        names = [f"{slot}.{place}" for place in range(len(arrays))]
        inputs[slot] = [graph.feed(n, type_of(a)) for n, a in zip(names, arrays, strict=True)]
        feed |= {n: np.ascontiguousarray(a) for n, a in zip(names, arrays, strict=True)}
    inferred = infer_types(defn, defn.types_of(inputs), op)
    outputs = {
        slot: [
            graph.var(f"out.{slot}.{i}", tensor_type)
            for i, tensor_type in enumerate(listed(inferred[slot]))
        ]
        for slot in defn.outputs()
        if inferred.get(slot) is not None and not is_absent(call, defn, slot)
    }
    graph.op(call.op, inputs, outputs, op.attrs, op.source)
    graph.results = [var for vars in outputs.values() for var in vars]
    return graph, feed, list(outputs)


def is_absent(call: Call, defn: OpDef, slot: str) -> bool:
    """Whether a slot is the gradient of an input that was not passed."""
    variable = slot.removesuffix(GRAD)
    return slot.endswith(GRAD) and variable in defn.inputs() and variable not in call.values


def _bytes(var: Var) -> int:
    """Bytes of a value, with 1 for every data-dependent size."""
    known_sizes = [size for size in var.type.shape if isinstance(size, int)]
    return prod(known_sizes) * var.type.dtype.itemsize


def _difference(found: Sequence[Any], wanted: Sequence[Any]) -> Outcome:
    for got, want in zip(found, wanted, strict=True):
        actual, expected = (np.shape(got), got.dtype), (np.shape(want), want.dtype)
        if actual != expected:
            return Outcome(DIFFERS, f"{actual}, expected {expected}")
        if not np.allclose(_numbers(got), _numbers(want), 1e-3, 1e-5, equal_nan=True):
            return Outcome(DIFFERS, f"{got.ravel()[:4]}, expected {np.ravel(want)[:4]}")
    return Outcome(RESULT)


def _numbers(array: Any) -> Any:
    """Convert to comparable numbers: infinity equals NaN, since summation order decides between
    them.
    """
    wide = np.asarray(array, np.float64)
    return np.where(np.isfinite(wide), wide, np.nan)


def run(chosen: Sequence[Case], target: str, limits: Limits, workers: int) -> list[Outcome]:
    """The outcomes of cases, each in a child process."""
    os.environ.setdefault("TRITON_INTERPRET", "1")

    def lost(index: int, why: str) -> Outcome:
        return Outcome(CRASH if why.startswith("crash") else HANG, why)

    return call_in_children(
        lambda index: attempt(chosen[index], target), len(chosen), limits, lost, workers
    )


def report(target: str, chosen: Sequence[Case], outcomes: Sequence[Outcome], shown: int) -> str:
    """The counts of outcomes, the first failures of each op, and whether the goal is met."""
    counts = Counter(outcome.kind for outcome in outcomes)
    row: Mapping[str, Any] = {"target": target, "tries": len(chosen)}
    row = {**row, **{kind: counts[kind] for kind in KINDS}}
    columns = {"target": "", **dict.fromkeys(list(row)[1:], ",d")}
    failures = [(c, o) for c, o in zip(chosen, outcomes, strict=True) if o.failed]
    lines = [f"  {o.kind}: {c}\n      {o.text}" for c, o in failures[:shown]]
    done = goal(f"{len(failures)} of {len(chosen):,} fail", not failures, "0")
    return "\n".join([table("Attributes", [row], columns), *lines, done])


def main(arguments: Sequence[str]) -> int:
    """Run the attack; return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="attack.py attributes", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--only", help="ops whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="take every n-th case (%(default)s)")
    parser.add_argument("--samples", type=int, default=1, help="samples of an op (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="limit of a case (%(default)s)")
    parser.add_argument("--memory", type=int, default=3, help="limit in GiB (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--show", type=int, default=20, help="failures to print (%(default)s)")
    options = parser.parse_args(arguments)
    chosen = [c for c in cases(options.samples) if (options.only or "") in c.call.op][
        :: options.every
    ]
    limits = Limits(options.memory << 30, options.seconds)
    failed = False
    for target in options.target or TARGETS:
        start = time.perf_counter()
        outcomes = run(chosen, target, limits, options.workers)
        print(report(target, chosen, outcomes, options.show))
        print(f"  {time.perf_counter() - start:.0f} s", flush=True)
        failed |= any(outcome.failed for outcome in outcomes)
    return int(failed)
