"""Every kernel of the models that people train, as machine code of every GPU, without one.

Two cores need less than a minute for a GPU: what is held is what all processes worked, since other
tests may run beside these.
"""

import resource
import time

import pytest

from bench.support.modules import modules
from compiler.codegen.triton.ahead import build
from compiler.codegen.triton.gpus import gpus

pytest.importorskip("triton")

CORES = 2
COLD, WARM = 60.0, 1.0
"""Seconds for all models and one GPU on that many cores, and where all was built before."""


@pytest.fixture(scope="module")
def found():
    return list(modules().values())


def worked():
    """Seconds that processors worked for this process and those it started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


@pytest.mark.parametrize("gpu", ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"])
def test_every_kernel_of_the_models_is_built(gpu, found, tmp_path):
    start = worked()
    built = build(found, gpus(gpu), tmp_path, 10**10)
    assert worked() - start < COLD * CORES
    assert [len(each) for each in built] == [len(module.kernels) for module in found]
    spilled = {
        each.kernel: (each.code.registers, each.code.spilled, each.job.source)
        for kernels in built
        for each in kernels
        if each.code.spilled and not each.job.is_product
    }
    assert not spilled, "kernels that only move memory fit into registers"
    start = worked()
    assert build(found, gpus(gpu), tmp_path, 10**10) == built
    assert worked() - start < WARM
