"""Random programs: each pass alone, and legal orders of passes, preserve the interpreter's numbers.

A program is determined by its number. For each of them every pass runs alone, as far as it requires
no other, and then random orders of up to 24 passes: the passes of an order that are illegal at
their position must be rejected, naming the missing fact, and the remaining ones must preserve every
result and all state, in the interpreter and in the generated code. The tests do the same with fewer
programs, which hypothesis chooses. The exit code is 1 if a number changed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import runtime
from bench.support.table import goal, table
from compiler.codegen.numpy import NumpyTarget
from compiler.freeze import freeze
from compiler.ir.graph import Graph
from compiler.ir.text.printer import parse, show
from compiler.passes.base import Context, Pass
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import named
from tests.passes.random_networks import random_network
from tests.passes.test_random_networks import NAMES, close, legal, made_for, numbers


def main() -> int:
    """Check the requested number of programs and print how many runs preserved every number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="(%(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first number")
    parser.add_argument(
        "--orders", type=int, default=2, metavar="N", help="orders for each (%(default)s)"
    )
    options = parser.parse_args()
    since, failures, done = time.perf_counter(), [], {"alone": 0, "orders": 0, "refused": 0}
    for number in range(options.first, options.first + options.count):
        failures += check(number, options.orders, done)
        if number % 100 == 99:
            print(f"{number + 1} programs, {len(failures)} failures", file=sys.stderr, flush=True)
    for failure in failures:
        print(failure)
    print(summary(options.count, done, len(failures), time.perf_counter() - since))
    return 1 if failures else 0


def check(number: int, orders: int, done: dict[str, int]) -> list[str]:
    """Failures of a program, a line each; updates the counts in `done`."""
    rng = Random(number)
    text = show(random_network(rng, rng.randint(1, 24)))
    failures = [failure for name in NAMES if (failure := kept(text, alone(name), number, rng))]
    done["alone"] += len(NAMES)
    for _ in range(orders):
        names = rng.choices(NAMES, k=rng.randint(2, 24))
        passes = legal(names)
        done["orders"] += 1
        done["refused"] += len(names) - len(passes)
        failures += filter(None, [kept(text, passes, number, rng)])
    return failures


def alone(name: str) -> list[Pass]:
    """A pass, after the one that it requires."""
    passes = named(["schedule", name])
    return passes[not passes[1].requires :]


def kept(text: str, passes: Sequence[Pass], number: int, rng: Random) -> str:
    """Describe what changed when these passes ran over a program; empty if nothing did."""
    graph, constant = parse(text), rng.random() < 0.5
    feed, state = made_for(graph, number)
    want = numbers(parse(text), feed, state)
    params = {name: array.copy() for name, array in state.items()}
    try:
        run_passes(graph, passes, Context(params if constant else None, memory_budget="60%"))
        close(numbers(parse(show(graph)), feed, params), want)
        close(computed(graph, feed, params), want)
    except (AssertionError, ValueError, LookupError) as error:
        names = ", ".join(pass_.name for pass_ in passes)
        return (
            f"program {number}, constant {constant}: {names}: {str(error).strip().splitlines()[0]}"
        )
    return ""


def computed(graph: Graph, feed: dict, params: dict) -> dict:
    """The results and final state of the code generated for a graph."""
    results = runtime.load(NumpyTarget().emit(freeze(graph)), params=params)(feed)
    return dict(enumerate(results)) | params


def summary(count: int, done: dict[str, int], failures: int, seconds: float) -> str:
    """The counts as a table, and whether the goal is met."""
    row = {"programs": count, **done, "moved": failures, "seconds": seconds}
    columns = dict.fromkeys(row, ",d") | {"seconds": ",.0f"}
    met = goal(f"{failures} runs of passes moved a number", not failures, "0")
    return "\n".join([table("Random programs", [row], columns), met])


if __name__ == "__main__":
    sys.exit(main())
