"""Every kernel of common models compiles to machine code for every GPU, without one.

`bench/ahead.py` measures the time of a first and a repeated build. `make test` builds one model for
one GPU, `make slow` all for all.
"""

from collections.abc import Collection
from typing import Any

import pytest

from compiler.codegen.ahead import build as ahead
from compiler.codegen.ahead.gpus import gpus
from tests.support.modules import TRAINED, modules

pytest.importorskip("triton")


@pytest.mark.parametrize(
    ("gpu", "models"),
    [
        ("cuda:90", ["lenet_bn"]),
        *(
            pytest.param(gpu, TRAINED, marks=pytest.mark.slow)
            for gpu in ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")
        ),
    ],
)
def test_every_kernel_of_the_models_is_built(
    gpu: str, models: Collection[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = list(modules(models).values())
    built = ahead.build(result, gpus(gpu), tmp_path, 10**10)
    assert [len(each) for each in built] == [len(module.kernels) for module in result]
    spilled = {
        kernel.kernel: (kernel.code.registers, kernel.code.spilled, kernel.job.source)
        for kernels in built
        for kernel in kernels
        if kernel.code.spilled and not kernel.job.is_product
    }
    assert not spilled, "kernels that only move memory fit into registers"
    compiled: list[Any] = []
    monkeypatch.setattr(ahead, "compiled", lambda jobs, processes: compiled.extend(jobs) or ())
    assert ahead.build(result, gpus(gpu), tmp_path, 10**10) == built
    assert not compiled, "what was built once is not built again"
