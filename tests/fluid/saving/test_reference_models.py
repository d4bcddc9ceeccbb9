"""Models that the reference saved: read, run, and written again for it to read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid

GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
CASES = sorted(path.name.removesuffix("__io.npz") for path in GOLDEN.glob("*__io.npz"))
LAYOUTS: dict[str, dict[str, str]] = {
    "separate": {},
    "combined": {"model_filename": "model", "params_filename": "params"},
}


def recorded(case: str) -> tuple[dict[str, Any], np.ndarray]:
    """The feeds and the output of the reference."""
    with np.load(GOLDEN / f"{case}__io.npz") as result:
        feeds: dict[str, Any] = {n[3:]: result[n] for n in result.files if n.startswith("in.")}
        for name in (name for name in feeds if f"lod:in.{name}" in result.files):
            lengths = [result[f"lod:in.{name}"].tolist()]
            feeds[name] = fluid.create_lod_tensor(feeds[name], lengths, fluid.CPUPlace())
        return feeds, result["out"]


def run(folder: Path, layout: str, case: str, exe: Any) -> tuple[np.ndarray, Any]:
    feed, _ = recorded(case)
    model = fluid.io.load_inference_model(str(folder), exe, **LAYOUTS[layout])
    program, names, fetches = model
    assert sorted(names) == sorted(feed)
    (output,) = exe.run(program, feed=feed, fetch_list=fetches[:1], return_numpy=False)
    return np.asarray(output), model


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_saved_models_compute_what_the_reference_does_and_are_written_again(
    case: str, layout: str, exe: Any, tmp_path: Path
):
    original = GOLDEN / f"{case}__{layout}"
    with fluid.scope_guard(fluid.Scope()):
        first, (program, names, fetches) = run(original, layout, case, exe)
        fluid.io.save_inference_model(tmp_path, names, fetches, exe, program, **LAYOUTS[layout])
    np.testing.assert_allclose(first, recorded(case)[1], rtol=1e-5, atol=1e-5)
    if layout == "separate":  # the other layout has the same program
        with fluid.scope_guard(fluid.Scope()):
            second, _ = run(tmp_path, layout, case, exe)
        np.testing.assert_array_equal(second, first)
    model = LAYOUTS[layout].get("model_filename", "__model__")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in original.iterdir()
    )
    for path in original.iterdir():
        assert path.name == model or (tmp_path / path.name).read_bytes() == path.read_bytes()
