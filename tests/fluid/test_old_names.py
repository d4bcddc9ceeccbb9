"""Names that old scripts import from inside Paddle 1.8.5, and what they do."""

import pytest

import fluid
from tests.fluid.test_as_paddle import installed


@pytest.fixture(autouse=True)
def paddle():
    with installed() as module:
        yield module


def program(x, shape=(2,)):
    return fluid.layers.data(x, list(shape))


def test_a_prefix_is_not_a_module():
    from paddle.fluid.clip import GradientClipByValue

    assert GradientClipByValue is fluid.clip.GradientClipByValue
