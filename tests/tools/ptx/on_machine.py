"""Kernels of a compiled module, built for a GPU that is not there and run by the PTX machine."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import runtime
from compiler.codegen.ahead.build import build
from compiler.codegen.ahead.gpus import gpus
from compiler.codegen.triton.target import TritonTarget
from compiler.freeze import freeze
from compiler.ir.opdef import find, listed
from compiler.options import NARROW, Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from runtime.gpu.drivers import Driver
from runtime.gpu.launches import Launcher, ManifestRow, by_name
from runtime.gpu.package import machine_library, without_kernels
from tests.ops.samples import samples
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, backward, forward, graph_of

TARGET = TritonTarget()
TOLERANCE = {"fp32": 2e-6, "tf32": 2e-3, "fp16": 5e-3, "bf16": 4e-2}
"""How far results may be from those of the op, by the type that products are computed in."""
CACHE = Path(os.environ.get("FLUID_PTX_CACHE") or Path.home() / ".cache/fluid/samples")


def cases():
    """The calls of samples whose ops have kernels."""
    for make, chosen in ((forward, samples()), (backward, DIFFERENTIATED)):
        for sample in chosen:
            op = find(sample.op)
            kind = op.kind if make is forward else op.grad_class.kind
            drawn = op.is_random and make is forward and "Key" not in sample.inputs
            if not drawn and TARGET.writes(find(kind)):
                yield kind, make, sample


def module_of(case, batch=NOBODY, dtype="fp32"):
    """The module of a case, its feed and the slots of its results; None if it runs on the host."""
    wanted = [s for s, value in case.results.items() if any(v.size for v in listed(value))]
    graph, feed = graph_of(case, wanted, batch)
    if any(TARGET.supports(op) for op in graph.ops()):
        return None
    options = Options(dtype=dtype if dtype in NARROW else "fp32")
    run_passes(graph, pipeline(options, TARGET), Context())
    return TARGET.emit(replace(freeze(graph), tf32=dtype == "tf32")), feed, wanted


def on_machine(module, library, params=None):
    """An executable of a module whose kernels the machine runs, with its state in `params`."""
    gpu = gpus(f"cuda:{library.capability}")
    ((built),) = build([module], gpu, CACHE, 2 * 10**9, processes=1)
    driver = Driver("cuda", 0, library)
    launchers = by_name(
        Launcher(_row(each), driver, each.code.files["ptx"], lambda: 0) for each in built
    )
    names = {"tl": SimpleNamespace(int32="int32", int64="int64"), **launchers}
    plain = replace(module, source=without_kernels(module.source))
    device = f"ptx:{library.capability}"
    place = runtime.CUDAPlace(0)
    return runtime.load(plain, place, params, names=names, poison=True, device=device)


def _row(each):
    own = len(each.job.types)
    return ManifestRow(
        each.kernel, str(each.gpu), "", each.code.entry, tuple(kind for _, kind in each.job.types),
        len(each.code.parameters) - own, each.constants, 32 * each.job.warps,
        each.code.shared,
    )  # fmt: skip


def check(case, capability=80, dtype="fp32"):
    """Compare a case run by the machine with what its op means; returns the launches."""
    created = module_of(case, dtype=dtype)
    return [] if created is None else run_and_compare(case, *created, capability, TOLERANCE[dtype])


def run_and_compare(case, module, feed, wanted, capability, tolerance, library=None):
    """Run the module of a case and compare its results; returns the launches.

    The tolerance is absolute, beside one of 5e-5 of each number; that of narrow types is for 1, and
    for the largest number of a result.
    """
    library = library or machine_library(f"ptx:{capability}")
    compute = on_machine(module, library)
    wants = [(slot, want) for slot in wanted for want in listed(case.results[slot])]
    for (slot, want), found in zip(wants, compute(feed), strict=True):
        assert (found.shape, found.dtype) == (np.shape(want), want.dtype)
        narrow = tolerance > TOLERANCE["fp32"]
        near = tolerance * max(1, np.abs(want[np.isfinite(want)]).max(initial=0) if narrow else 1)
        np.testing.assert_allclose(found, want, rtol=5e-5, atol=near, err_msg=slot)
    return library.launched
