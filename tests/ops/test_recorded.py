"""What PaddlePaddle 1.8.5 computed on a CPU, held against programs of one op as users run them.

`tests/golden/ops` has a file for each op type: under `cases` JSON that says, by case, attributes,
the variables of each slot and the lengths of sequences; and the arrays of each case: `in.`, `out.`
and `grad.` variables, `weight.` for the outputs whose weighted sum was differentiated. Tolerances
are the recording's.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid

FILES = sorted((Path(__file__).parents[1] / "golden" / "ops").glob("*.npz"))
ONLY_IN_TRAINING = ("Mask", "SavedMean", "SavedVariance")
"""Outputs that the reference leaves as they were where `is_test` is set."""


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the cases of a file by name, each with its `arrays`."""
    with np.load(path) as stored:
        cases = json.loads(str(stored["cases"]))
        for key in set(stored.files) - {"cases"}:
            case, name = key.split("/")
            cases[case].setdefault("arrays", {})[name] = stored[key]
    return cases


CASES = [(path.stem, name, case) for path in FILES for name, case in read(path).items()]


def close(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Hold one array against another; the tolerance grows with the largest value."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    scale = max(1.0, float(np.abs(want.astype(np.float64)).max())) if want.size else 1.0
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol * scale)


@pytest.mark.parametrize("disable", ["", "fuse_pointwise,schedule,reuse_memory"])
@pytest.mark.parametrize(("kind", "case"), [c[::2] for c in CASES], ids=[c[1] for c in CASES])
def test_outputs_and_gradients(
    kind: str, case: Mapping[str, Any], disable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_DISABLE", disable)
    agrees(kind, case, fluid.CPUPlace())


@pytest.mark.device
@pytest.mark.parametrize(("kind", "case"), [c[::2] for c in CASES], ids=[c[1] for c in CASES])
def test_on_a_device(kind: str, case: Mapping[str, Any]) -> None:
    pytest.importorskip("triton")
    agrees(kind, case, fluid.CUDAPlace(0))


def agrees(kind: str, case: Mapping[str, Any], place: Any) -> None:
    """Hold what a place computes against what was recorded."""
    wanted = list(outputs(case))
    found, gradients = computed(kind, case, [name for _, name in wanted], place)
    for (key, name), got in zip(wanted, found, strict=True):
        close(np.asarray(got), case["arrays"][key], rtol=2e-4, atol=2e-5)
        lengths = got.recursive_sequence_lengths()
        assert lengths == case.get("out_lod", {}).get(name, lengths)
    for name, got in zip(case.get("grad_of", ()), gradients, strict=True):
        close(np.asarray(got), case["arrays"]["grad." + name], rtol=1e-3, atol=1e-4)


def outputs(case: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The recorded outputs of a case: where they stand among its arrays, and their variables."""
    skipped = ONLY_IN_TRAINING if case["attrs"].get("is_test") else ()
    for slot, names in case["outputs"].items():
        keys = [(f"out.{slot}.{name}", name) for name in names if slot not in skipped]
        yield from ((key, name) for key, name in keys if key in case["arrays"])


def computed(
    kind: str, case: Mapping[str, Any], names: list[str], place: Any
) -> tuple[list[Any], list[Any]]:
    """What a program of the one op makes of the recorded inputs: outputs, and gradients."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.scope_guard(fluid.Scope()):
        feed = declare(program.global_block(), case)
        block = program.global_block()
        block.append_op(kind, case["inputs"], case["outputs"], case["attrs"])
        gradients = differentiated(block, case, feed) if case.get("grad_of") else []
        fetched = [*names, *gradients]
        values = fluid.Executor(place).run(program, feed, fetched, return_numpy=False)
    return values[: len(names)], values[len(names) :]


def declare(block: Any, case: Mapping[str, Any]) -> dict[str, Any]:
    """Declare the variables of a case; returns what is fed."""
    feed: dict[str, Any] = {}
    for name in (name for names in case["inputs"].values() for name in names):
        array, lengths = case["arrays"]["in." + name], case.get("lod", {}).get(name)
        fixed = name not in case.get("grad_of", ())
        about = {"stop_gradient": fixed, "lod_level": len(lengths or ())}
        block.create_var(name=name, shape=array.shape, dtype=str(array.dtype), **about)
        place = fluid.CPUPlace()
        feed[name] = array if not lengths else fluid.create_lod_tensor(array, lengths, place)
    for name in (name for names in case["outputs"].values() for name in names):
        if not block.has_var(name):
            block.create_var(name=name, dtype="float32")
    return feed


def differentiated(block: Any, case: Mapping[str, Any], feed: dict[str, Any]) -> list[Any]:
    """Append the gradients of the weighted sum that was recorded."""
    parts = []
    for name in (name for slot in case["loss_over"] for name in case["outputs"][slot]):
        weight = feed["w_" + name] = case["arrays"]["weight." + name]
        shape = (-1, *weight.shape[1:])
        about = {"dtype": "float32", "stop_gradient": True}
        weights = block.create_var(name="w_" + name, shape=shape, **about)
        weighted = fluid.layers.elementwise_mul(block.var(name), weights)
        parts.append(fluid.layers.reduce_sum(weighted))
    return fluid.gradients([fluid.layers.sums(parts)], [block.var(n) for n in case["grad_of"]])


def test_there_are_recordings() -> None:
    assert len(CASES) > 400
