"""The models whose steps `gpu_models.py` times and `account.py` counts: programs and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fluid
from fluid.contrib.mixed_precision import decorate
from tests.support.nets import bert, steps, timed, zoo

IMAGES = {"image": 224, "classes": 1000}
"""The settings of ResNet-50."""


@dataclass(frozen=True)
class Case:
    """A model, what is done with it, in which dtype, and with how many samples a step.

    A sample of BERT has so many `tokens`.
    """

    model: str
    work: str
    dtype: str
    batch: int
    tokens: int = 0

    @property
    def title(self) -> str:
        """The case in words."""
        size = f"{self.batch} × {self.tokens}" if self.tokens else str(self.batch)
        return f"{self.model} {self.work} {self.dtype} {size}"

    @property
    def trains(self) -> bool:
        """Whether a step updates the parameters."""
        return self.work == "training"


@dataclass(frozen=True)
class Network:
    """The programs of a case, and the variable that a step returns: the output, or the loss."""

    main: fluid.Program
    startup: fluid.Program
    result: Any


CASES = (
    *(Case("resnet50", "inference", "bf16", batch) for batch in (1, 64, 256)),
    Case("resnet50", "inference", "fp32", 64),
    *(Case("bert", "inference", "bf16", *size) for size in ((1, 128), (32, 128), (32, 512))),
    Case("bert", "inference", "fp32", 8, 128),
    *(Case("resnet50", "training", "bf16", batch) for batch in (64, 192)),
    Case("resnet50", "training", "fp32", 64),
    *(Case("bert", "training", "bf16", *size) for size in ((16, 128), (16, 512))),
    Case("lenet", "training", "fp32", 64), Case("resnet18", "training", "fp32", 8),
    Case("encoder", "training", "fp32", 16), Case("lstm", "training", "fp32", 16),
    Case("ctr_million", "training", "fp32", 64),
)  # fmt: skip


def chosen(words: Sequence[str]) -> list[Case]:
    """The cases whose title has one of some words; all without words."""
    return [case for case in CASES if not words or any(word in case.title for word in words)]


def feed(case: Case) -> dict[str, Any]:
    """A batch of a case; sequences are (array, lengths)."""
    random = np.random.RandomState(0)
    if case.model == "bert":
        return bert.draw(random, case.batch, case.tokens)
    if case.model == "resnet50":
        arrays = zoo.draw("resnet50", random, case.batch, **IMAGES)
        return arrays if case.trains else {"img": arrays["img"]}
    return dict(next(steps.drawn(case.model)))


def network(case: Case) -> Network:
    """Record a case; mixed precision casts what an optimizer of bfloat16 training reads."""
    if case.model == "bert":
        return _bert(case)
    if case.model != "resnet50":
        recorded = steps.model(fluid, case.model)
        return Network(recorded.main, recorded.startup, recorded.loss)
    plain = zoo.MODELS["resnet50"].optimizer
    optimizer = (lambda module: mixed(case, plain(module))) if case.trains else None
    recorded = zoo.build(fluid, "resnet50", train=case.trains, optimizer=optimizer, **IMAGES)
    if case.trains:
        return Network(recorded.main, recorded.startup, recorded.loss)
    block = recorded.test.block(0)
    (last,) = (op for op in block.ops if op.type == "softmax_with_cross_entropy")
    (name,) = last.input("Logits")
    predicts = recorded.test.prune_with_input(["img"], [name])
    return Network(predicts, recorded.startup, predicts.block(0).var(name))


def mixed(case: Case, optimizer: Any) -> Any:
    """The optimizer, with mixed precision if the case has it."""
    return decorate(optimizer, dtype="bfloat16") if case.dtype == "bf16" else optimizer


def _bert(case: Case) -> Network:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        result = bert.encoder(fluid, case.tokens)
        if case.trains:
            result = fluid.layers.mean(fluid.layers.square(result))
            mixed(case, timed.adam(fluid)).minimize(result)
    return Network(main, startup, result)


def arrays(batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a batch that are fed to a step: sequences with their offsets."""
    fed: dict[str, np.ndarray] = {}
    for name, value in batch.items():
        array, lengths = value if isinstance(value, tuple) else (value, None)
        fed[name] = array
        if lengths is not None:
            fed[f"{name}@LOD0"] = np.cumsum([0, *lengths])
    return fed
