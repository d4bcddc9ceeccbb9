"""Kernels of op samples, compiled for sm_80 and executed by the PTX machine, mean what their ops do.

Each launch goes through the project's own driver, launcher and packed arguments.
"""

import pytest

from tests.ops.samples import Sample, numbers
from tests.ops.test_generated import forward
from tests.tools.ptx.on_machine import cases, check

pytest.importorskip("triton")
pytest.importorskip("torch")

FAST = (
    "relu", "softmax", "layer_norm", "conv2d", "conv2d_grad", "matmul", "cos", "lamb",
    "add_position_encoding", "lookup_table_grad", "cumsum", "top_k", "dropout_grad", "reduce_sum", "pool2d_grad", "quantized_mul",
)  # fmt: skip
FIRST = {kind: (make, sample) for kind, make, sample in reversed(list(cases()))}


@pytest.fixture(autouse=True)
def host_memory(monkeypatch):
    """Device memory is the host's, as in the interpreter."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.mark.parametrize("kind", [each for each in FAST if each in FIRST])
def test_a_few_ops_agree(kind):
    make, sample = FIRST[kind]
    assert check(make(sample)), "its kernels are launched"


@pytest.mark.parametrize("capability", [80, 90])
def test_products_of_float64_agree(capability):
    """They use tensor cores, whose shape differs between GPUs."""
    a, b = (numbers(*shape).astype("f8") for shape in ((2, 17, 21), (2, 21, 9)))
    assert check(forward(Sample("matmul", {"X": a, "Y": b})), capability)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({*FIRST} - {*FAST}))
def test_every_op_agrees(kind):
    make, sample = FIRST[kind]
    check(make(sample))
