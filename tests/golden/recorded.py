"""Results of PaddlePaddle 1.8.5 op by op, and programs of one op that compute them again.

`ops` has a file for each op type: `cases` is JSON with attributes, the variables of each slot and
sequence lengths by case; then the arrays of each case: `in.`, `out.` and `grad.` variables,
`weight.` for the outputs whose weighted sum was differentiated.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fluid

FILES = sorted((Path(__file__).parent / "ops").glob("*.npz"))
ONLY_IN_TRAINING = ("Mask", "SavedMean", "SavedVariance")
"""Outputs that the reference leaves as they were where `is_test` is set."""


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the cases of a file by name, each with its `arrays`."""
    with np.load(path) as stored:
        cases = json.loads(str(stored["cases"]))
        for key in set(stored.files) - {"cases"}:
            case, name = key.split("/")
            cases[case].setdefault("arrays", {})[name] = stored[key]
    return cases


CASES = [(path.stem, name, case) for path in FILES for name, case in read(path).items()]


def outputs(case: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The recorded outputs of a case: where they stand among its arrays, and their variables."""
    skipped = ONLY_IN_TRAINING if case["attrs"].get("is_test") else ()
    for slot, names in case["outputs"].items():
        keys = [(f"out.{slot}.{name}", name) for name in names if slot not in skipped]
        yield from ((key, name) for key, name in keys if key in case["arrays"])


class Recorded(NamedTuple):
    """A program of one op, what it is fed, its outputs by name and the gradients."""

    program: Any
    feed: dict[str, Any]
    outputs: list[str]
    gradients: list[Any]


def recorded(kind: str, case: Mapping[str, Any]) -> Recorded:
    """The program of a case."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        block = program.global_block()
        feed = declare(block, case)
        block.append_op(kind, case["inputs"], case["outputs"], case["attrs"])
        gradients = differentiated(block, case, feed) if case.get("grad_of") else []
    return Recorded(program, feed, [name for _, name in outputs(case)], gradients)


def declare(block: Any, case: Mapping[str, Any]) -> dict[str, Any]:
    """Declare the variables of a case; returns what is fed."""
    feed: dict[str, Any] = {}
    for name in (name for names in case["inputs"].values() for name in names):
        array, lengths = case["arrays"]["in." + name], case.get("lod", {}).get(name)
        fixed = name not in case.get("grad_of", ())
        about = {"stop_gradient": fixed, "lod_level": len(lengths or ())}
        block.create_var(name=name, shape=array.shape, dtype=str(array.dtype), **about)
        place = fluid.CPUPlace()
        feed[name] = array if not lengths else fluid.create_lod_tensor(array, lengths, place)
    for name in (name for names in case["outputs"].values() for name in names):
        if not block.has_var(name):
            block.create_var(name=name, dtype="float32")
    return feed


def differentiated(block: Any, case: Mapping[str, Any], feed: dict[str, Any]) -> list[Any]:
    """Append the gradients of the weighted sum that was recorded."""
    parts = []
    for name in (name for slot in case["loss_over"] for name in case["outputs"][slot]):
        weight = feed["w_" + name] = case["arrays"]["weight." + name]
        shape = (-1, *weight.shape[1:])
        about = {"dtype": "float32", "stop_gradient": True}
        weights = block.create_var(name="w_" + name, shape=shape, **about)
        weighted = fluid.layers.elementwise_mul(block.var(name), weights)
        parts.append(fluid.layers.reduce_sum(weighted))
    return fluid.gradients([fluid.layers.sums(parts)], [block.var(n) for n in case["grad_of"]])
