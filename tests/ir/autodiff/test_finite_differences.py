"""Gradients of random programs against finite differences, also where names are written again."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.interpret import run
from compiler.ir.autodiff.append_backward import append_backward
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.program import Block
from compiler.ir.types import DType
from tests.ir.test_autodiff import SIZE, add, block, values

SMOOTH = (
    "tanh",
    "sigmoid",
    "square",
    "scale",
    "elementwise_add",
    "elementwise_sub",
    "elementwise_mul",
    "sum",
)
Recipe = list[tuple[str, list[int], int | None]]


def recipes(kinds: tuple[str, ...], *, overwrite: bool) -> st.SearchStrategy[Recipe]:
    """Ops as (type, which variables they read, which one they write; None for a new one)."""
    written = st.one_of(st.none(), st.integers(0, 20)) if overwrite else st.none()
    step = st.tuples(
        st.sampled_from(kinds), st.lists(st.integers(0, 20), min_size=2, max_size=3), written
    )
    return st.lists(step, min_size=1, max_size=8)


def follow(recipe: Recipe) -> tuple[Block, str]:
    """Build the program of a recipe; inputs x and y are never overwritten.

    A sum that writes over one of its operands has it once: twice has the reference's wrong gradient.
    """
    net = block("x", "y")
    names = ["x", "y"]
    for kind, which, written in recipe:
        read = [names[index % len(names)] for index in which]
        temporaries = names[2:]
        out = (
            f"v{len(names)}"
            if written is None or not temporaries
            else temporaries[written % len(temporaries)]
        )
        count = 3 if kind == "sum" else 2 if kind.startswith("elementwise") else 1
        attrs = {"scale": 0.5, "bias": 0.25} if kind == "scale" else {}
        read = list(dict.fromkeys(read)) if kind == "sum" and out in read else read
        add(net, out, kind, *read[:count], **attrs)
        names += [] if out in names else [out]
    return net, finish(net, *dict.fromkeys(names[-3:]))


def finish(block: Block, *names: str) -> str:
    """Append a loss that weighs the elements of some variables differently."""
    weights = block.add_var("weights", shape=[SIZE], dtype=DType.FP64, stop_gradient=True)
    for name in names:
        add(block, f"{name}.weighed", "elementwise_mul", name, weights.name)
    add(block, "total", "sum", *(f"{name}.weighed" for name in names))
    add(block, "loss", "mean", "total")
    return "loss"


@given(recipes(SMOOTH, overwrite=False))
def test_gradients_of_random_programs(recipe: Recipe) -> None:
    check(*follow(recipe))


@given(recipes((*SMOOTH, "assign"), overwrite=True))
def test_gradients_where_names_are_written_again(recipe: Recipe) -> None:
    check(*follow(recipe))


def check(net: Block, loss: str) -> None:
    feed = {
        "x": np.array([0.3, -0.2, 0.5]),
        "y": np.array([-0.4, 0.1, 0.2]),
        "weights": np.array([1.0, -2.0, 3.0]),
    }
    plain = to_graph(net.owner, {name: array.shape for name, array in feed.items()}, [loss])
    result = append_backward(net, loss)
    for name in ("x", "y"):
        computed = values(net, feed, result[name])[0] if name in result else np.zeros(SIZE)
        assert computed == pytest.approx(slopes(plain, feed, name), rel=1e-5, abs=1e-7)


def slopes(graph: Any, feed: dict[str, np.ndarray], name: str, step: float = 1e-6) -> np.ndarray:
    """Central differences of the graph's only result by each element of a feed."""
    results = []
    for index in range(SIZE):
        sides = []
        for sign in (1.0, -1.0):
            moved = feed[name].copy()
            moved[index] += sign * step
            sides.append(run(graph, feed | {name: moved}, {})[0].item())
        results.append((sides[0] - sides[1]) / (2 * step))
    return np.array(results)
