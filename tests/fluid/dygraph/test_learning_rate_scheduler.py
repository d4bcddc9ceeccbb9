"""Learning rates of eager mode, beside those that release 1.8.5 computed."""

import numpy as np
import pytest

from fluid import dygraph, layers

RATES = {
    "PiecewiseDecay([1, 3], [0.3, 0.2, 0.1], 0)": [0.3, 0.2, 0.2, 0.1, 0.1],
    "NaturalExpDecay(0.1, 2, 0.5, True)": [0.1, 0.1, 0.0606531, 0.0606531, 0.0367879],
    "ExponentialDecay(0.1, 2, 0.5)": [0.1, 0.0707107, 0.05, 0.0353553, 0.025],
    "InverseTimeDecay(0.1, 2, 0.5)": [0.1, 0.08, 0.0666667, 0.0571429, 0.05],
    "PolynomialDecay(0.1, 2, 0.01, 2.0, True)": [0.1, 0.0325, 0.01, 0.015625, 0.01],
    "PolynomialDecay(0.1, 3, 0.01)": [0.1, 0.07, 0.04, 0.01, 0.01],
    "CosineDecay(0.1, 2, 3)": [0.1, 0.1, 0.075, 0.075, 0.025],
    "NoamDecay(16, 3)": [0.0481125, 0.096225, 0.144338, 0.125, 0.111803],
    "LinearLrWarmup(0.1, 3, 0.0, 0.1)": [0.0333333, 0.0666667, 0.1, 0.1, 0.1],
    "LinearLrWarmup(NoamDecay(16, 3), 2, 0.0, 0.1)": [0.05, 0.096225, 0.144338, 0.125, 0.111803],
}
EPOCHS = {
    "StepDecay(0.1, 2)": [0.1, 0.1, 0.01, 0.01, 0.001],
    "MultiStepDecay(0.1, [1, 3])": [0.1, 0.01, 0.01, 0.001, 0.001],
    "LambdaDecay(0.1, lambda epoch: 0.5 ** epoch)": [0.1, 0.05, 0.025, 0.0125, 0.00625],
}


@pytest.fixture(autouse=True)
def eager_mode():
    with dygraph.guard():
        yield


@pytest.mark.parametrize("source", RATES)
def test_rate_of_each_step(source):
    rate = eval(source, vars(dygraph))  # noqa: S307 - it is above
    np.testing.assert_allclose([float(rate()) for _ in range(5)], RATES[source], rtol=1e-5)


@pytest.mark.parametrize(
    ("source", "expected"),
    {
        "noam_decay(16, 3)": "NoamDecay(16, 3)",
        "piecewise_decay([1, 3], [0.3, 0.2, 0.1])": "PiecewiseDecay([1, 3], [0.3, 0.2, 0.1], 0)",
        "exponential_decay(0.1, 2, 0.5)": "ExponentialDecay(0.1, 2, 0.5)",
    }.items(),
)
def test_layer_function_returns_rate_of_each_step(source, expected):
    rate = eval(f"layers.{source}", {"layers": layers})  # noqa: S307 - it is above
    np.testing.assert_allclose([float(rate()) for _ in range(5)], RATES[expected], rtol=1e-5)


@pytest.mark.parametrize("source", EPOCHS)
def test_rate_of_each_epoch(source):
    rate = eval(source, vars(dygraph))  # noqa: S307 - it is above
    rates = []
    for _ in range(5):
        rates.append(float(rate()))
        rate.epoch()
    np.testing.assert_allclose(rates, EPOCHS[source], rtol=1e-5)


def test_rate_falls_where_loss_stays():
    rate = dygraph.ReduceLROnPlateau(0.1, patience=1, decay_rate=0.5, cooldown=1)
    rates = []
    for loss in (3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0):
        rate.step(dygraph.to_variable(np.array([loss], "float32")))
        rates.append(float(rate()))
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025], rtol=1e-5)


def test_state_is_restored():
    rate = dygraph.NoamDecay(16, 3)
    rate()
    state = rate.state_dict()
    again = dygraph.NoamDecay(16, 3)
    again.set_dict(state)
    assert float(again()) == float(rate())
    with pytest.raises(RuntimeError, match=r"Can't find \[ step_num \]"):
        again.set_dict({})
