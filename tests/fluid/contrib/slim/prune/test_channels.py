"""What becomes smaller where filters are removed."""

import pytest

import fluid
from fluid import layers
from fluid.contrib.slim.graph import GraphWrapper
from fluid.contrib.slim.prune.channels import PrunedSlices


def pruned(build):
    """The indices that go when filters 0 and 3 of `w` do."""
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [None, 2, 4, 4])
        build(layers.conv2d(x, 4, 3, padding=1, param_attr="w", bias_attr=False), x)
        graph = GraphWrapper(fluid.default_main_program())
        slices = PrunedSlices(graph)
        slices.prune_filters(graph.var("w"), [0, 3])
    return slices.indices


def test_concatenated_channels_and_rows() -> None:
    def build(h, x):
        joined = layers.concat([x, layers.relu(h)], axis=1)
        layers.conv2d(joined, 2, 3, param_attr="c", bias_attr=False)
        layers.fc(h, 3, param_attr="f", bias_attr=False)

    indices = pruned(build)
    assert indices["c"] == {1: {2, 5}}
    assert indices["f"] == {0: {*range(16), *range(48, 64)}}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda h, x: layers.elementwise_add(h, h), "elementwise_add reads them"),
        (lambda h, x: layers.reshape(h, [-1, 64]), "reshape2 reads them"),
        (lambda h, x: layers.conv2d(h, 4, 3, groups=2), "reads them in groups"),
    ],
)
def test_what_cannot_be_followed_raises(build, message) -> None:
    with pytest.raises(ValueError, match=message):
        pruned(build)
