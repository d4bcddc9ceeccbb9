"""Modules: models of the zoo, whose kernels are built for GPUs elsewhere, and one of ranks."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import compiler
import fluid
from compiler.codegen.module import Module
from tests.support.nets import zoo

FULL = {"image": 224, "classes": 1000}
"""Image size and classes of ImageNet."""

TRAINED: dict[str, dict[str, Any]] = {
    "lenet_bn": {}, "resnet50": FULL, "mobilenet_v1": FULL, "transformer": {},
    "transformer_encoder": {}, "ctr_wide_deep": {},
}  # fmt: skip
"""Models that are trained, with their settings."""

PREDICTING = {"resnet50": FULL, "mobilenet_v1": FULL}
"""Inference models."""


def modules(names: Collection[str] = TRAINED) -> dict[str, Module]:
    """The modules by model name, with the suffix ` inference` for inference."""
    train = {name: each for name, each in TRAINED.items() if name in names}
    predict = {name: each for name, each in PREDICTING.items() if name in names}
    results = {name: trained(name, **settings) for name, settings in train.items()}
    return results | {
        f"{name} inference": predicting(name, **each) for name, each in predict.items()
    }


def trained(name: str, **settings: Any) -> Module:
    """The module of a training step; any batch size."""
    recorded = zoo.build(fluid, name, **settings)
    feeds = [var.name for var in recorded.main.list_vars() if var.is_data]
    return compiler.compile(recorded.main, feed=feeds, fetch=[recorded.loss], target="triton")


def predicting(name: str, **settings: Any) -> Module:
    """The module of image classification; any batch size."""
    test = zoo.build(fluid, name, train=False, **settings).test
    (last,) = (op for op in test.block(0).ops if op.type == "softmax_with_cross_entropy")
    with fluid.program_guard(test):
        classes = fluid.layers.softmax(test.block(0).var(last.input("Logits")[0]))
    return compiler.compile(test._prune([classes]), feed=["img"], fetch=[classes], target="triton")


def launches(module: Module) -> int:
    """How many kernels a step launches."""
    names = "|".join(re.escape(kernel.name) for kernel in module.kernels)
    return len(re.findall(rf"^ +(?:{names})\[", module.source, re.MULTILINE))


SUM_OF_RANKS = """
import numpy as np
NAME = "sum"
TARGET = "numpy"
DIMS = ("N",)
FEEDS = (("x", "float32", ("N", 2)),)
PARAMS = (("w", "float32", (2,), True),)
FETCHES = (("y", "float32", ("N", 2)), ("total", "float32", (2,)))
BUFFERS = ()

def bind(take, params, N):
    w = params["w"]
    def step(x):
        total = x.sum(0) * w
        collective.all_reduce(0, "total", "sum", total)
        np.add(w, 1, out=w)
        return (x + 1, total)
    return step
"""
"""The text of a module whose step adds `total` over all ranks and counts `w` up."""
