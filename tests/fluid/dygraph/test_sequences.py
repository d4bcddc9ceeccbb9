"""Layer objects on sequences."""

import pytest

import fluid
from fluid import layers
from fluid.dygraph import nn


def ops_of(build):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        out = build(fluid.data("x", [None, 4], "float32", lod_level=1))
        ops = fluid.default_main_program().global_block().ops
        names = ("contextStart", "contextLength", "contextStride")
        attrs = [{name: op.attr(name) for name in names if op.has_attr(name)} for op in ops]
        return [op.type for op in ops], attrs, out.shape


def test_layers_append_ops_of_functions() -> None:
    assert ops_of(lambda x: nn.RowConv("r", 2)(x)) == ops_of(lambda x: layers.row_conv(x, 2))
    assert ops_of(lambda x: nn.SequenceConv("s", 3, act="relu")(x)) == ops_of(
        lambda x: layers.sequence_conv(x, 3, act="relu")
    )


def test_eager_mode_is_refused() -> None:
    with fluid.dygraph.guard():
        for layer in (lambda: nn.RowConv("r", 2), lambda: nn.SequenceConv("s", 3)):
            with pytest.raises(AssertionError, match="not supported by dynamic graph mode"):
                layer()
