"""Shapes that do not belong together, in every op: each gives a typed error or NumPy's result.

Every operand of the samples of every op, and of their gradient ops, gets other shapes, known at
compile time or only at run time. Native kernels check the bounds of every load and store. An access
out of bounds, an error of another type than the project's, a crash, a hang, a result where the
NumPy target raises, or another result than its fail. Exit code 1 if one case does.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import fluid
import runtime
from bench.support.table import goal, table
from compiler.driver import compile_graph
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.graph import Graph
from compiler.ir.opdef import find, listed
from compiler.ir.opdef.type_inference import bind, infer_types
from compiler.ir.program import GRAD, OpDesc
from compiler.ir.types import type_of
from compiler.options import Options
from runtime.sizes import LOD
from tools.verify import fuzz_files
from tools.verify.attacks.outcomes import (
    BOUNDS,
    CRASH,
    DIFFERS,
    HANG,
    LARGE,
    RANDOM,
    REFUSED,
    RESULT,
    ROUNDING,
    SLOW,
    TYPED,
    UNTYPED,
    Outcome,
    attempted,
)  # fmt: skip
from tools.verify.attacks.shape_cases import Case, chosen
from tools.verify.sizing.problem import Slow, within
from tools.verify.support.children import Limits, call_in_children

ACCEPTED = "refused by NumPy"
KINDS = (
    RESULT, LARGE, RANDOM, ROUNDING, SLOW, REFUSED, TYPED, BOUNDS, UNTYPED, ACCEPTED, DIFFERS,
    CRASH, HANG,
)  # fmt: skip
"""`data refused` counts results where NumPy rejects the value of an index: kernels need not."""
FAULTS = (*fuzz_files.FAULTS, SyntaxError)
INDEX = re.compile(r"index -?\d+ is out of (bounds|range)")
TARGETS = ("native", "numpy")
SOURCE = "model.py:7"
REFERENCE_SECONDS = 3
PRODUCTS = ("reduce_prod", "reduce_prod_grad")
MAX_OUTPUT = 1 << 28
"""Most bytes of outputs: larger ones are neither computed nor compared."""
PROGRAMS = 4
"""Compiled programs that a process keeps: cases of one program follow each other."""


def attempt(case: Case, target: str) -> Outcome:
    """Infer, compile and run a case in this process."""

    def run() -> Outcome:
        if _output_bytes(case) > MAX_OUTPUT:
            return Outcome(LARGE)
        results = computed(case, target)
        return Outcome(RESULT) if target == "numpy" else _compared(case, results)

    return attempted(run, FAULTS)


def _output_bytes(case: Case) -> int:
    """The bytes of the outputs whose sizes the shapes of the operands determine; 0 if refused."""
    defn = find(case.call.op)(case.call.attrs)
    types = {s: defn.slots[s].hold([*map(type_of, values)]) for s, values in case.arrays.items()}
    try:
        inferred = defn.infer_types(types)
    except FAULTS:
        return 0
    sizes = (
        type.nbytes
        for tensor_type in inferred.values()
        for type in listed(tensor_type)
        if type is not None
    )
    return sum(size for size in sizes if isinstance(size, int))


def _compared(case: Case, found: Sequence[Any]) -> Outcome:
    """Compare results with those of the NumPy target."""
    defn = find(case.call.op)
    try:
        with within(REFERENCE_SECONDS):
            wanted = computed(case, "numpy")
    except Slow as error:
        return Outcome(SLOW, str(error))
    except FAULTS as error:
        kind = REFUSED if INDEX.search(str(error)) else ACCEPTED
        return Outcome(kind, f"{type(error).__name__}: {error!s:.300}")
    if defn.is_random and "Key" not in case.call.values:
        return Outcome(RANDOM)
    outcome = difference(found, wanted)
    if outcome.kind == DIFFERS and (_overflows(case) or _is_as_exact(case, found, wanted)):
        return Outcome(ROUNDING, outcome.text)
    return outcome


def _overflows(case: Case) -> bool:
    """Whether a product of many numbers overflows in some order."""
    if case.call.op not in PRODUCTS:
        return False
    with np.errstate(divide="ignore"):
        powers = np.log2(np.abs(case.arrays["X"][0]))
    return float(powers[powers > 0].sum()) > np.finfo(np.float32).maxexp


def _is_as_exact(case: Case, found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether results are about as near to those of the reference in float64 as NumPy's are."""
    defn = find(case.call.op)(case.call.attrs)
    if defn.is_composite:
        return False
    inputs = {
        slot: defn.slots[slot].hold([_wide(array) for array in arrays])
        for slot, arrays in case.arrays.items()
    }
    try:
        outputs = defn.evaluate(inputs)
    except FAULTS:
        return False
    slots = [slot for slot in defn.outputs() if not _is_absent(case, slot)]
    exact = [output for slot in slots for output in listed(outputs.get(slot)) if output is not None]
    return len(exact) == len(found) and all(
        _distance(got, is_exact) <= 2 * _distance(want, is_exact) < np.inf
        for got, want, is_exact in zip(found, wanted, exact, strict=True)
    )


def _wide(array: Any) -> Any:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _distance(array: Any, exact: Any) -> float:
    """The largest difference of two arrays; infinite if their shapes differ."""
    if np.shape(array) != np.shape(exact):
        return np.inf
    return float(np.abs(np.asarray(array, np.float64) - exact).max(initial=1e-30))


def difference(found: Sequence[Any], wanted: Sequence[Any]) -> Outcome:
    """Compare arrays: types, shapes and numbers up to rounding of sums."""
    for got, want in zip(found, wanted, strict=True):
        actual, expected = (np.shape(got), got.dtype), (np.shape(want), want.dtype)
        if actual != expected:
            return Outcome(DIFFERS, f"{actual}, expected {expected}")
        first, second = _numbers(got), _numbers(want)
        largest = float(np.nanmax(np.abs(second), initial=0.0))
        if not np.allclose(first, second, 1e-3, 1e-5 * max(1.0, largest), equal_nan=True):
            return Outcome(DIFFERS, f"{got.ravel()[:4]}, expected {np.ravel(want)[:4]}")
    return Outcome(RESULT)


def _numbers(array: Any) -> Any:
    """Convert to comparable numbers: infinity equals NaN, since summation order decides between
    them.
    """
    wide = np.asarray(array, np.float64)
    return np.where(np.isfinite(wide), wide, np.nan)


# ---- programs ----------------------------------------------------------------------------------

_programs: OrderedDict[tuple[str, str], Callable[[], Any]] = OrderedDict()


def computed(case: Case, target: str) -> list[Any]:
    """The results of a case; raises whatever refuses it."""
    key = target, case.program
    if key not in _programs:
        _programs[key] = _kept(partial(_loaded, case, target))
        while len(_programs) > 2 * PROGRAMS:
            _programs.popitem(last=False)
    compute = _programs[key]()
    feed = {name: np.ascontiguousarray(array) for name, array in _by_name(case.arrays).items()}
    return compute(_renamed(case, feed))


def _by_name(values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Values of slots by the name of a feed."""
    return {f"{s}.{place}": v for s, items in values.items() for place, v in enumerate(items)}


def _kept(function: Callable[[], Any]) -> Callable[[], Any]:
    """Call a function once, now, and return or raise its result each time."""
    try:
        result = function()
    except FAULTS as error:
        return partial(_raise, error)
    return lambda: result


def _raise(error: Exception) -> Any:
    raise error


def _loaded(case: Case, target: str) -> Any:
    graph = _program(case) if find(case.call.op).is_composite else _graph(case)
    options = Options(check=int(target == "native"))
    return runtime.load(compile_graph(graph, target=target, options=options).module)


def _graph(case: Case) -> Graph:
    """The graph of one op; in place of the inferred shape of an output the case's."""
    call, graph = case.call, Graph()
    names = {s: [f"{s}.{place}" for place in range(len(ts))] for s, ts in case.types.items()}
    op = OpDesc(call.op, names, {}, call.attrs, SOURCE)
    defn = bind(op)
    inputs = {
        slot: [graph.feed(name, type) for name, type in zip(names[slot], types, strict=True)]
        for slot, types in case.types.items()
    }
    inferred = infer_types(defn, defn.types_of(inputs), op)
    outputs = {
        slot: [
            graph.var(f"out.{slot}.{i}", tensor_type)
            for i, tensor_type in enumerate(listed(inferred[slot]))
        ]
        for slot in defn.outputs()
        if inferred.get(slot) is not None and not _is_absent(case, slot)
    }
    slot, place = case.operand
    if slot in outputs:
        var = outputs[slot][place]
        var.type = var.type.with_shape(case.shape)
    graph.op(call.op, inputs, outputs, op.attrs, op.source)
    graph.results = [var for vars in outputs.values() for var in vars]
    return graph


def _is_absent(case: Case, slot: str) -> bool:
    """Whether a slot is the gradient of an input that was not passed."""
    variable, inputs = slot.removesuffix(GRAD), find(case.call.op).inputs()
    return slot.endswith(GRAD) and variable in inputs and variable not in case.call.values


def _program(case: Case) -> Graph:
    """The graph of a program of one composite op, which becomes other ops."""
    cls, program = find(case.call.op), fluid.Program()
    block, inputs = program.global_block(), dict[str, list[str]]()
    types = _renamed(
        case, {f"{s}.{i}": t for s, ts in case.types.items() for i, t in enumerate(ts)}
    )
    for slot in (slot for slot in case.types if not cls.slots[slot].companion):
        inputs[slot] = [f"{slot}.{place}" for place in range(len(case.types[slot]))]
        for name in inputs[slot]:
            levels = sum(fed_name.startswith(name + LOD) for fed_name in types)
            shape = [size if isinstance(size, int) else -1 for size in types[name].shape]
            dtype = types[name].dtype.numpy.name
            block.create_var(name=name, shape=shape, dtype=dtype, lod_level=levels)
    slots = [slot for slot in cls.outputs().values() if not slot.companion]
    needed = [slot for slot in slots if not slot.optional] or slots
    outputs = {slot.name: [f"{slot.name}:0"] for slot in needed}
    for names in outputs.values():
        block.create_var(name=names[0], dtype="float32")
    block.append_op(case.call.op, inputs, outputs, dict(case.call.attrs))
    fetched = [name for names in outputs.values() for name in names]
    return to_graph(program, {name: type.shape for name, type in types.items()}, fetched)


def _renamed(case: Case, feed: dict[str, Any]) -> dict[str, Any]:
    """The feed of a case, in which the levels of a LoD of a composite op have a program's names."""
    cls = find(case.call.op)
    if not cls.is_composite:
        return feed
    renamed_feed = dict[str, Any]()
    for name, value in feed.items():
        slot, _, place = name.rpartition(".")
        of = cls.slots[slot].of if cls.slots[slot].companion == "lod" else ""
        many = bool(of) and cls.slots[of].many
        level = f"{of}.{place}{LOD}0" if many else f"{of}.0{LOD}{place}"
        renamed_feed[level if of else name] = value
    return renamed_feed


# ---- the attack --------------------------------------------------------------------------------


def run(cases: Sequence[Case], target: str, limits: Limits, jobs: int) -> list[Outcome]:
    """The outcomes of cases, in child processes: each its own slice, one program after another."""
    size = -(-len(cases) // jobs)
    order = [i for number in range(size) for i in range(number, len(cases), size)]

    def lost(index: int, why: str) -> Outcome:
        return Outcome(CRASH if why.startswith("crash") else HANG, why)

    def called(index: int) -> Outcome:
        return attempt(cases[order[index]], target)

    results = call_in_children(called, len(cases), limits, lost, jobs)
    outcomes = dict(zip(order, results, strict=True))
    return [outcomes[index] for index in range(len(cases))]


def line(case: Case, outcome: Outcome) -> str:
    """A failure as one line."""
    text = " ".join(outcome.text.split())
    return f"{outcome.kind}: {case} | {text:.400}"


def report(target: str, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """A line for each failure, the counts of outcomes, and whether the goal is met."""
    counts = Counter(outcome.kind for outcome in outcomes)
    row = {"target": target, "tries": len(cases), **{kind: counts[kind] for kind in KINDS}}
    columns = {"target": "", **dict.fromkeys(list(row)[1:], ",d")}
    failures = [(c, o) for c, o in zip(cases, outcomes, strict=True) if o.failed]
    done = goal(f"{len(failures)} of {len(cases):,} fail", not failures, "0")
    return "\n".join([*(line(c, o) for c, o in failures), table("Shapes", [row], columns), done])


def part_of(text: str) -> tuple[int, int]:
    """Parse a slice `i/n`, i from 0.

    >>> part_of("1/4")
    (1, 4)
    """
    index, _, slices = text.partition("/")
    if not 0 <= int(index) < int(slices):
        raise argparse.ArgumentTypeError(f"{text}: expected i/n with i from 0 below n")
    return int(index), int(slices)


def main(arguments: Sequence[str]) -> int:
    """Run the attack; return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="attack.py shapes", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, default="native", help="(%(default)s)")
    parser.add_argument("--count", type=int, default=2000, help="how many cases (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other cases")
    parser.add_argument("--slice", type=part_of, default=(0, 1), help="i/n: slice i of n of them")
    parser.add_argument("--only", default="", help="ops whose name contains this")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of a case (%(default)s)")
    parser.add_argument("--memory", type=int, default=4, help="limit in GiB (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    options = parser.parse_args(arguments)
    os.environ.setdefault("CPU_NUM", "1")
    cases = chosen(options.count, options.seed, options.only, options.slice)
    start = time.perf_counter()
    limits = Limits(options.memory << 30, options.seconds)
    outcomes = run(cases, options.target, limits, min(options.jobs, len(cases)))
    print(report(options.target, cases, outcomes))
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    return int(any(outcome.failed for outcome in outcomes))
