"""Runs kernels on the PTX machine, without a GPU, and counts what agrees with the reference.

    python -m tools.verify.ptx --gpu 80 90 --dtype fp32 tf32 fp16 bf16
    python -m tools.verify.ptx --gpu 90 --only conv2d matmul --packages
    FLUID_CHECK=1 python -m tools.verify.ptx --gpu 80 --dtype fp32         hazards, unwritten memory
    FLUID_PERTURB=1 python -m tools.verify.ptx --gpu 80 --dtype fp32        errors of approximations
    python -m tools.verify.ptx --gpu 80 --orders 1 2                     the same bytes in any order

All device calls of op samples are built and run, or with --first the first of each op; and, with
--packages, the golden inference models as packages. Calls of which a type changes no kernel are
counted as the same and not run again. Exits 1 if one disagrees or is refused.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np

import fluid
from compiler.errors import CompileError
from compiler.ir.opdef import GradOp, find
from compiler.options import NARROW
from fluid.cli.main import main as fluid_command
from fluid.inference.packages import load_compiled
from tests.tools.ptx.on_machine import (
    TOLERANCE,
    cases,
    check,
    module_of,
    on_machine,
    run_and_compare,
)
from tools.ptx.library import Library

MODELS = Path(__file__).resolve().parents[2] / "tests/golden/inference"
Failure = tuple[str, str]


def calls(only: Sequence[str], first: bool) -> Iterator[tuple[str, Any]]:
    """The calls of samples with kernels, with one of `only` in their names."""
    seen: set[str] = set()
    for kind, make, sample in cases():
        wanted = not only or any(part in kind for part in only)
        if wanted and not (first and kind in seen):
            seen.add(kind)
            yield kind, make(sample)


def run_call(case: Any, capability: int, dtype: str) -> str:
    """What became of a call: agrees, the same code as fp32, or on the host."""
    if dtype == "fp32":
        return "agree" if check(case, capability) else "on the host"
    if dtype in NARROW and issubclass(find(case.op), GradOp):
        return "of training"  # narrow products are for inference
    compiled, plain = module_of(case, dtype=dtype), module_of(case)
    if compiled is None or plain is None:
        return "on the host"
    if compiled[0].source == plain[0].source:
        return "same as fp32"
    return (
        "agree" if run_and_compare(case, *compiled, capability, TOLERANCE[dtype]) else "on the host"
    )


def run_calls(
    given: argparse.Namespace, capability: int, dtype: str
) -> tuple[Counter[str], list[Failure]]:
    """Run calls; returns the counts and what failed."""
    counts, failed = Counter[str](), list[Failure]()
    for kind, case in calls(given.only, given.first):
        try:
            if given.orders:
                counts[run_in_orders(case, capability, given.orders)] += 1
            else:
                counts[run_call(case, capability, dtype)] += 1
        except (CompileError, AssertionError) as error:
            counts["fail"] += 1
            failed.append((kind, f"{type(error).__name__}: {error}"))
    return counts, failed


def run_in_orders(case: Any, capability: int, seeds: Sequence[int]) -> str:
    """Run a call with its CTAs by number, and in orders drawn from seeds: the bytes are the same.

    Raises AssertionError if they differ and no atomics add floating-point numbers.
    """
    compiled = module_of(case)
    if compiled is None:
        return "on the host"
    module, feed, _ = compiled
    first, *others = (Library(capability, order=seed) for seed in (None, *seeds))
    expected = on_machine(module, first)(feed)
    for library in others:
        results = on_machine(module, library)(feed)
        if any(a.tobytes() != b.tobytes() for a, b in zip(results, expected, strict=True)):
            assert library.adds_by_atomics, f"other bytes in order {library.order}"
            return "sums of atomics"
    return "same bytes"


def run_packages(
    only: Sequence[str], capability: int, dtype: str
) -> tuple[Counter[str], list[Failure]]:
    """Compile golden models to packages and run these; returns the counts and what failed."""
    counts, failed = Counter[str](), list[Failure]()
    for model in sorted(MODELS.glob("*__separate")):
        name = model.name.removesuffix("__separate")
        if only and not any(part in name for part in only):
            continue
        try:
            run_package(model, capability, dtype)
            counts["agree"] += 1
        except (CompileError, AssertionError) as error:
            counts["fail"] += 1
            failed.append((name, f"{type(error).__name__}: {error}"))
    return counts, failed


def run_package(model: Path, capability: int, dtype: str) -> None:
    """Compile a model and compare its package on the machine with the model on the CPU."""
    feed = feed_of(model)
    expected = fluid.create_predictor(str(model)).run(feed)
    names = {"FLUID_TF32": "1"} if dtype == "tf32" else {"FLUID_DTYPE": dtype}
    os.environ.update(names)
    try:
        with TemporaryDirectory() as folder:
            target = ["--target", f"cuda:{capability}", "-o", f"{folder}/package"]
            with redirect_stdout(StringIO()):
                status = fluid_command(["compile", str(model), *target])
            if status:
                raise CompileError("fluid compile fails")
            results = run_on_machine(f"{folder}/package", feed, capability)
    finally:
        for name in names:
            del os.environ[name]
    for mine, want in zip(results, expected, strict=True):
        largest = float(np.abs(want).max(initial=1))
        np.testing.assert_allclose(mine, want, rtol=1e-4, atol=3 * TOLERANCE[dtype] * largest)


def run_on_machine(package: str, feed: list[Any], capability: int) -> list[Any]:
    """The results of a package on the machine."""
    interpreted = os.environ.pop("TRITON_INTERPRET")
    os.environ["FLUID_GPU"] = f"ptx:{capability}"
    try:
        return list(load_compiled(package).run(feed))
    finally:
        del os.environ["FLUID_GPU"]
        os.environ["TRITON_INTERPRET"] = interpreted


def feed_of(model: Path) -> list[Any]:
    """The recorded inputs of a golden model, in the order of its feeds."""
    names = fluid.create_predictor(str(model)).feed_names
    with np.load(model.parent / model.name.replace("__separate", "__io.npz")) as data:
        return [given_as(data, name) for name in names]


def given_as(data: Mapping[str, Any], name: str) -> Any:
    """A recorded input; with its lengths where it has sequences."""
    array = data[f"in.{name}"]
    if f"lod:in.{name}" not in data:
        return array
    return fluid.create_lod_tensor(array, [data[f"lod:in.{name}"].tolist()], fluid.CPUPlace())


def main() -> int:
    """Print a line for each GPU and type, and one for each failure."""
    parser = argparse.ArgumentParser(description=str(__doc__))
    parser.add_argument("--gpu", nargs="+", type=int, default=[80, 90])
    parser.add_argument("--dtype", nargs="+", choices=TOLERANCE, default=list(TOLERANCE))
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of ops or models")
    parser.add_argument("--first", action="store_true", help="the first sample of each op alone")
    parser.add_argument("--packages", action="store_true", help="packages instead of calls")
    parser.add_argument("--orders", nargs="+", type=int, help="seeds of orders of CTAs, in fp32")
    options, bad = parser.parse_args(), 0
    options.dtype = ["fp32"] if options.orders else options.dtype
    for capability in options.gpu:
        for dtype in options.dtype:
            start = time.perf_counter()
            if options.packages:
                states, failed = run_packages(options.only, capability, dtype)
            else:
                states, failed = run_calls(options, capability, dtype)
            counts = ", ".join(f"{states[state]} {state}" for state in sorted(states))
            print(
                f"sm_{capability} {dtype}: {counts} ({time.perf_counter() - start:.0f} s)",
                flush=True,
            )
            for name, text in failed:
                print(f"  {name}: {' '.join(text.split())[:300]}", flush=True)
            bad += len(failed)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
