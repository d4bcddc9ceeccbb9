"""What PaddlePaddle 1.8.5 computed on a CPU, held against what each op means.

`tests/golden/ops` has a file for each op type: under `cases` JSON that says, by case, attributes
and the variables of each slot; and the arrays of each case: `in.`, `out.` and `grad.` variables,
`weight.` for the outputs whose weighted sum was differentiated. Tolerances are the recording's.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler.ops
from compiler.ir.opdef import find
from tests.ops.backward import gradients

assert compiler.ops, "importing it fills the registry"

FILES = sorted((Path(__file__).parents[1] / "golden" / "ops").glob("*.npz"))


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the cases of a file by name, each with its `arrays`."""
    with np.load(path) as stored:
        cases = json.loads(str(stored["cases"]))
        for key in set(stored.files) - {"cases"}:
            case, name = key.split("/")
            cases[case].setdefault("arrays", {})[name] = stored[key]
    return cases


CASES = [(path.stem, name, case) for path in FILES for name, case in read(path).items()]


def values(kind: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a case by slot."""
    found = {s: [case["arrays"]["in." + n] for n in ns] for s, ns in case["inputs"].items()}
    return {s: v if find(kind).slots[s].many else v[0] for s, v in found.items()}


def close(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Hold one array against another; the tolerance grows with the largest value."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    scale = max(1.0, float(np.abs(want.astype(np.float64)).max()))
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol * scale)


@pytest.mark.parametrize(("kind", "case"), [c[::2] for c in CASES], ids=[c[1] for c in CASES])
def test_outputs_and_gradients(kind: str, case: Mapping[str, Any]) -> None:
    arrays, inputs = case["arrays"], values(kind, case)
    outputs = find(kind)(case["attrs"]).evaluate(inputs)
    for slot, (name,) in case["outputs"].items():
        if f"out.{slot}.{name}" in arrays:
            close(outputs[slot], arrays[f"out.{slot}.{name}"], rtol=2e-4, atol=2e-5)
    if not case["grad_of"]:
        return
    weights = {s: arrays["weight." + case["outputs"][s][0]] for s in case["loss_over"]}
    found = gradients(kind, case["attrs"], inputs, weights)
    for slot, names in case["inputs"].items():
        pairs = zip(names, found[slot] if len(names) > 1 else [found.get(slot)], strict=True)
        for name, got in pairs:
            if name in case["grad_of"]:
                close(got, arrays["grad." + name], rtol=1e-3, atol=1e-4)


def test_there_are_recordings() -> None:
    assert len(CASES) > 100
