"""Kernels of a compiled module, built for sm_80 and run by the PTX machine."""

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
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from runtime.gpu.drivers import Driver
from runtime.gpu.launches import Launcher, Row
from runtime.gpu.package import without_kernels
from runtime.ptx.library import Library
from tests.ops.samples import samples
from tests.ops.test_generated import DIFFERENTIATED, NOBODY, backward, forward, graph_of

TARGET = TritonTarget()
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


def module_of(case, batch=NOBODY):
    """The feed of a case and its module; None if the call runs on the host."""
    wanted = [s for s, value in case.results.items() if any(v.size for v in listed(value))]
    graph, feed = graph_of(case, wanted, batch)
    if any(TARGET.supports(op) for op in graph.ops()):
        return None
    run_passes(graph, pipeline(Options(), TARGET), Context())
    return TARGET.emit(freeze(graph)), feed, wanted


def on_machine(module, library):
    """An executable of a module whose kernels the machine runs."""
    ((built),) = build([module], gpus("cuda:80"), CACHE, 2 * 10**9, processes=1)
    driver = Driver("cuda", 0, library)
    launchers = {
        each.kernel: Launcher(_row(each), driver, each.code.files["ptx"], lambda: 0)
        for each in built
    }
    names = {"tl": SimpleNamespace(int32="int32", int64="int64"), **launchers}
    plain = replace(module, source=without_kernels(module.source))
    return runtime.load(plain, runtime.CUDAPlace(0), names=names, poison=True)


def _row(each):
    own = len(each.job.types)
    return Row(
        each.kernel, str(each.gpu), "", each.code.entry, tuple(kind for _, kind in each.job.types),
        len(each.code.parameters) - own, each.constants, 32 * each.job.warps,
        each.code.shared,
    )  # fmt: skip


def check(case):
    """Compare a case run by the machine with what its op means; returns the launches."""
    made = module_of(case)
    if made is None:
        return []
    module, feed, wanted = made
    library = Library()
    compute = on_machine(module, library)
    wants = [(slot, want) for slot in wanted for want in listed(case.results[slot])]
    for (slot, want), found in zip(wants, compute(feed), strict=True):
        assert (found.shape, found.dtype) == (np.shape(want), want.dtype)
        np.testing.assert_allclose(found, want, rtol=5e-5, atol=2e-6, err_msg=slot)
    return library.launched
