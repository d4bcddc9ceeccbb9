"""Every model of the zoo is built, predicts and trains; losses are those that Paddle 1.8.5 had."""

from typing import Any

import numpy as np
import pytest

import fluid
from tests.support.nets import timed, zoo

WITHOUT_DROPOUT: dict[str, dict[str, Any]] = {
    name: {"dropout": False} for name in ("vgg16_bn", "inception_v1", "se_resnext50")
}
N = 4


def one_of(name: str, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """A batch, as the executor takes it."""
    return timed.fed(fluid, zoo.draw(name, np.random.RandomState(seed), N, **settings))


RECORDED: dict[str, tuple[float, ...]] = {
    "vgg16_bn": (2.264597, 33.463917, 36.703270),
    "resnet18": (3.750151, 3.472889, 3.908099),
    "inception_v1": (3.685324, 3.681530, 3.717770),
    "unet": (0.706768, 0.697940, 0.703226),
    "mobilenet_block": (2.392372, 2.290931, 2.409019),
    "transformer_classifier": (1.740099, 1.666692, 1.468439),
    "transformer": (4.624572, 4.566339, 4.654195),
    "sentiment_stacked_lstm": (0.789806, 0.750595, 0.724432),
    "tagger_gru_crf": (3.913960, 4.610851, 4.458108),
    "static_rnn_lm": (0.456504, 0.518203, 0.489573),
    "while_power": (1.525982, 2.847542, 2.017388),
}
"""The losses of three steps that Paddle 1.8.5 has from `waves`, without dropout."""

OPS = {"resnet50": 532, "se_resnext50": 870, "densenet121": 1281, "transformer": 376}
"""How many ops the reference records for the longest ones, with their optimizers."""


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if name not in RECORDED])
def test_a_model_predicts_and_learns(name: str) -> None:
    settings = zoo.small(name)
    recorded = zoo.build(fluid, name, **settings)
    ops = len(recorded.main.global_block().ops)
    assert ops == OPS.get(name, ops)
    batch, executor = one_of(name, **settings), fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        executor.run(recorded.startup)
        (said,) = executor.run(recorded.test, batch, [recorded.output], return_numpy=False)
        (loss,) = executor.run(recorded.main, batch, [recorded.loss])
        (later,) = executor.run(recorded.main, batch, [recorded.loss])
    assert all(np.isfinite(np.array(each)).all() for each in (said, loss, later))
    assert later != loss


@pytest.mark.parametrize("name", ["unet", "transformer", "se_resnext50"])
def test_a_model_to_predict_with_has_no_backward(name: str) -> None:
    settings = zoo.small(name)
    recorded = zoo.build(fluid, name, train=False, **settings)
    kinds = {op.type for op in recorded.main.global_block().ops}
    assert not {kind for kind in kinds if kind.endswith("_grad")}
    assert recorded.test.global_block().var(recorded.output.name).shape[0] == -1


def waves(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter that both sides can make up, of a size that keeps signals in hand."""
    places = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    size = (2.0 / max(np.prod(shape[1:], dtype=int), 1)) ** 0.5
    return (np.sin(places * 0.7 + len(name)) * size).astype(np.float32)


@pytest.mark.parametrize("name", RECORDED)
def test_losses_are_those_of_the_reference(name: str) -> None:
    settings = zoo.small(name) | WITHOUT_DROPOUT.get(name, {})
    recorded = zoo.build(fluid, name, **settings)
    executor, scope = fluid.Executor(), fluid.Scope()
    with fluid.scope_guard(scope):
        executor.run(recorded.startup)
        for parameter in recorded.main.all_parameters():
            if len(parameter.shape) > 1:
                tensor = scope.find_var(parameter.name).get_tensor()
                tensor.set(waves(parameter.name, parameter.shape), fluid.CPUPlace())
        losses = [
            executor.run(
                recorded.main, feed=one_of(name, seed, **settings), fetch_list=[recorded.loss]
            )
            for seed in range(3)
        ]
        (predicted,) = executor.run(
            recorded.test, one_of(name, **settings), [recorded.output], return_numpy=False
        )
    np.testing.assert_allclose(np.ravel(losses), RECORDED[name], rtol=1e-3)
    assert np.isfinite(np.array(predicted)).all()
    ops = len(recorded.main.global_block().ops)
    assert ops == OPS.get(name, ops)
