"""Models that the reference's predictor saved after its passes: with fused ops, read and run.

`io.npz` has the feeds, whose sequences have 2, 1 and 3 rows or one row each, and the outputs.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.core import AnalysisConfig, PaddleTensor, create_paddle_predictor

GOLDEN = Path(__file__).parents[3] / "golden" / "optimised"
FUSED = {
    "attn": {"fusion_seqexpand_concat_fc"},
    "images": {"fc"},
    "mlp": {"fc", "fusion_repeated_fc_relu"},
    "text": {"fc", "fusion_gru", "fusion_lstm", "fusion_seqconv_eltadd_relu"},
}


def recorded(case: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the feeds and the outputs of the reference."""
    with np.load(GOLDEN / case / "io.npz") as result:
        feeds = {n.removeprefix("feed."): result[n] for n in result.files if n[:5] == "feed."}
        return feeds, [result[f"fetch.{i}"] for i in range(len(result.files) - len(feeds))]


def lengths(array: Any) -> list[int]:
    """Return the lengths of the sequences of a feed."""
    return [2, 1, 3] if len(array) == 6 else [1, 1, 1]


@pytest.mark.parametrize("case", FUSED)
def test_executor_matches_the_reference(case: str) -> None:
    exe, (feeds, wanted) = fluid.Executor(fluid.CPUPlace()), recorded(case)
    with fluid.scope_guard(fluid.Scope()):
        folder = str(GOLDEN / case)
        program, names, fetches = fluid.io.load_inference_model(folder, exe, "model", "params")
        block = program.global_block()
        assert FUSED[case] <= {op.type for op in block.ops}
        feed = {
            n: fluid.create_lod_tensor(feeds[n], [lengths(feeds[n])], fluid.CPUPlace())
            if block.var(n).lod_level
            else feeds[n]
            for n in names
        }
        actual = exe.run(program, feed=feed, fetch_list=fetches, return_numpy=False)
    for got, want in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", FUSED)
def test_predictor_matches_the_reference(case: str) -> None:
    feeds, wanted = recorded(case)
    config = AnalysisConfig(str(GOLDEN / case / "model"), str(GOLDEN / case / "params"))
    config.disable_gpu()
    predictor = create_paddle_predictor(config)
    actual = predictor.run([tensor(name, feeds[name]) for name in predictor.get_input_names()])
    for got, want in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(got.as_ndarray(), want, rtol=1e-5, atol=1e-6)


def tensor(name: str, array: Any) -> PaddleTensor:
    """Return a feed of the predictor; images and plain rows have no sequences."""
    created = PaddleTensor(array)
    created.name = name
    if name in ("a", "b", "c", "w"):
        created.lod = [np.append(0, np.cumsum(lengths(array))).tolist()]
    return created
