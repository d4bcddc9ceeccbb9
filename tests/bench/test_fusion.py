"""Passes for inference move no number of any model, and leave no batch norm in it."""

import pytest

from bench import fusion
from tests.support.nets import zoo

MODELS = [
    "lenet_bn", "resnet50", "se_resnext50", "mobilenet_v2", "inception_v1", "densenet121", "unet", "transformer", "word2vec", "while_power",
]  # fmt: skip
SAVED = list(fusion.saved())


def expect_fused(subject: fusion.Subject) -> None:
    (row,) = fusion.measure([subject], repeats=1)
    assert row["moved"] <= fusion.LIMIT
    assert row["batch norms"].endswith("→ 0")
    assert "run ms" in fusion.report([row])


@pytest.mark.parametrize("name", MODELS)
def test_models_of_papers(name: str) -> None:
    expect_fused(fusion.recorded(name, 2, **zoo.small(name)))


@pytest.mark.parametrize("subject", SAVED, ids=[each.name for each in SAVED])
def test_models_that_the_reference_saved(subject: fusion.Subject) -> None:
    expect_fused(subject)
