"""Counters of the kernels of models, on the PTX machine: no GPU is needed, and no time is claimed.

    python bench/counters.py
    python bench/counters.py --models lenet_bn --json bench/results/counters.json
    python bench/counters.py --before bench/results/counters.json    # a column for each

One step of small versions of ResNet-50 (training and inference), a Transformer, its encoder alone
and wide & deep for clicks, and of LeNet as it is. For each family of kernels: launches a step,
ideal bytes, sectors that multiprocessors fetch and store ÷ ideal (`fetched`), the same of distinct
sectors of a launch (`memory`), accesses of shared memory and passes for each, and the share of
threads that diverge (docs/ptx.md). Kernels that move less than a hundredth of a step, and access
less of its shared memory, are in `others`. The goal of sectors is for families without products
that move a hundredth or more: a tensor of a few bytes never fills a sector.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import fluid
from bench.account import weights
from bench.support.table import Row, goal, table
from compiler.debugging.explanation import study_graph
from compiler.driver import feed_shapes
from compiler.ir.conversion.program_to_graph import to_graph
from tests.support.nets import zoo
from tools.ptx.counters import KernelCounters
from tools.ptx.counters.results import SECTOR
from tools.ptx.step_counters import count_step

STEPS = (
    ("lenet_bn", "training", 8),
    ("resnet50", "training", 4),
    ("resnet50", "inference", 4),
    ("transformer", "training", 2),
    ("transformer_encoder", "training", 4),
    ("ctr_wide_deep", "training", 64),
)
"""Models of `tests.support.nets.zoo`, what is done with them, and batch sizes."""

COLUMNS = {
    "family": "", "launches": ",d", "kB": ",.1f", "fetched": ".2f", "memory": ".2f",
    "shared": ",d", "passes": ".2f", "diverge": ".1%",
}  # fmt: skip
BEFORE = {"fetched before": ".2f", "passes before": ".2f"}

LEAST = 0.01
"""Share of a step's ideal bytes, and of its shared accesses, below which kernels are `others`."""

FETCHED, PASSES = 1.15, 1.5
PRODUCTS = re.compile(r"conv|mul|matmul")
"""Families that compute products, whose tiles of operands are fetched again by other CTAs."""


def measure(models: Sequence[str]) -> Iterator[tuple[str, list[Row]]]:
    """Count a step of each model; rows by family, those that move the most first."""
    for name, work, batch in STEPS:
        if name in models:
            yield f"{name}, {work}", rows(counted(name, work == "training", batch))


def counted(name: str, train: bool, batch: int) -> list[KernelCounters]:
    """The counters of a step of a model on random inputs."""
    settings = zoo.small(name)
    network = zoo.build(fluid, name, train=train, **settings)
    program = network.main if train else network.test
    feeds = [var.name for var in program.list_vars() if var.is_data]
    fetched = network.loss if train else network.output
    graph = to_graph(program, feed_shapes(program, feeds), [fetched.name])
    sizes = {size: batch for var in graph.feeds() for size in var.type.names}
    state = weights(network.startup)
    seen = study_graph(name, graph, sizes, target="triton", params=None if train else dict(state))
    feed = zoo.draw(name, np.random.RandomState(0), batch, **settings)
    return list(count_step(seen.module, feed, {**state, **seen.params}).kernels.values())


def family(kernel: str) -> str:
    """The op that a kernel computes, without what follows it in the kernel.

    >>> family("conv2d_grad_relu_grad_12"), family("batch_norm_grad_parts_1"), family("mul_3")
    ('conv2d_grad', 'batch_norm_grad', 'mul')
    """
    plain = re.sub(r"(_parts)?(_\d+)?$", "", kernel)
    return re.sub(r"(?<=.)_(relu|elementwise_add|sum|gelu)(_grad)?(?=_|$)", "", plain)


def rows(kernels: Iterable[KernelCounters]) -> list[Row]:
    """A row for each family; small ones together."""
    kernels = list(kernels)
    bytes_, accesses = sum(k.ideal for k in kernels), sum(k.banks.accesses for k in kernels)
    groups: dict[str, list[KernelCounters]] = {}
    for kernel in kernels:
        groups.setdefault(family(kernel.kernel), []).append(kernel)
    large = {
        name: group
        for name, group in groups.items()
        if sum(k.ideal for k in group) >= LEAST * bytes_
        or sum(k.banks.accesses for k in group) >= LEAST * accesses
    }
    small = [k for name, group in groups.items() if name not in large for k in group]
    family_rows = [_row(name, group) for name, group in large.items()]
    family_rows.sort(key=lambda row: -row["kB"])
    return [*family_rows, *([_row("others", small)] if small else []), _row("all", kernels)]


def _row(name: str, group: Sequence[KernelCounters]) -> dict[str, Any]:
    ideal = sum(k.ideal for k in group)
    moved, touched = (
        SECTOR * sum(getattr(k.loads, part) + getattr(k.stores, part) for k in group)
        for part in ("fetched", "touched")
    )
    accesses, passes = (sum(getattr(k.banks, p) for k in group) for p in ("accesses", "passes"))
    slots = sum(k.slots for k in group)
    return {
        "family": name,
        "launches": sum(k.launches for k in group),
        "kB": ideal / 1e3,
        "fetched": moved / max(ideal, 1),
        "memory": touched / max(ideal, 1),
        "shared": accesses,
        "passes": passes / accesses if accesses else None,
        "diverge": 1 - sum(k.lanes for k in group) / max(slots, 1),
    }


def compared(found: Sequence[Row], before: Mapping[str, Row]) -> list[Row]:
    """Rows with the numbers of an earlier run."""
    old = ((row, before.get(row["family"], {})) for row in found)
    return [
        {**row, "fetched before": was.get("fetched"), "passes before": was.get("passes")}
        for row, was in old
    ]


def report(results: Mapping[str, Sequence[Row]], before: Mapping[str, Sequence[Row]]) -> str:
    """Tables and goals, as text."""
    lines: list[str] = []
    for name, model_rows in results.items():
        previous = {row["family"]: row for row in before.get(name, ())}
        columns = {**COLUMNS, **(BEFORE if previous else {})}
        lines += [
            table(name, compared(model_rows, previous) if previous else model_rows, columns),
            *_goals(model_rows),
            "",
        ]
    return "\n".join(lines)


def _goals(found: Sequence[Row]) -> list[str]:
    families = [row for row in found if row["family"] not in ("all", "others")]
    least = LEAST * found[-1]["kB"]
    moving = [r for r in families if r["kB"] >= least and not PRODUCTS.match(r["family"])]
    worst = max(moving, key=lambda row: row["fetched"], default=None)
    shared = found[-1]["passes"]
    lines = []
    if worst is not None:
        text = f"fetched ÷ ideal {worst['fetched']:.2f} ({worst['family']}, without products)"
        lines.append(goal(text, worst["fetched"] <= FETCHED, f"≤ {FETCHED}"))
    if shared is not None:
        lines.append(goal(f"{shared:.2f} bank passes an access", shared <= PASSES, f"≤ {PASSES}"))
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; write them as JSON and as a page if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(name for name, _, _ in STEPS))
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path, help="write the rows to this file, and a page beside")
    parser.add_argument("--before", type=Path, help="compare with a file that --json wrote")
    options = parser.parse_args(arguments)
    before = json.loads(options.before.read_text()) if options.before else {}
    results = dict(measure(options.models))
    text = report(results, before)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        title = "# Counters of kernels on the PTX machine (sm_80); no device was used"
        page = f"{title}\n\n`python bench/counters.py`; see its help and docs/ptx.md.\n\n"
        options.json.with_suffix(".md").write_text(f"{page}```\n{text}```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
