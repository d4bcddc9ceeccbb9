"""Fusion of pointwise ops: which ops it reports, and why."""

import pytest

from compiler.ir.text.parser import parse
from compiler.passes.base import Context
from compiler.passes.fusion import fuse_pointwise
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import named

CHAIN = """graph main {
  feed x: f32[4]
  (Out=a: f32[4]) = tanh(X=x)
  (Out=b: f32[4]) = relu(X=a)
  (Out=c: f32[4]) = square(X=b)
  return c
}"""


def missed(limits, monkeypatch):
    """The ops that are reported for a chain of three, with their reasons."""
    for name, value in limits.items():
        monkeypatch.setattr(fuse_pointwise, name, value)
    context = Context()
    run_passes(parse(CHAIN), named(["fuse_pointwise"]), context)
    return [(note.outputs, note.reason) for note in context.missed]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"LARGEST": 2}, "the kernel next to it has 2 ops, the maximum"),
        ({"WINDOW": 2}, "the kernel next to it begins 2 ops or more earlier"),
    ],
)
def test_fuse_pointwise_reports_the_op_behind_a_full_kernel(limits, reason, monkeypatch):
    assert missed(limits, monkeypatch) == [(("c",), reason)]


def test_fuse_pointwise_reports_nothing_for_fused_ops(monkeypatch):
    assert missed({}, monkeypatch) == []
