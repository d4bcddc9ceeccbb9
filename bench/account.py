"""Bytes moved and flops of large models on a GPU, before and after fusion; needs no GPU.

    python bench/account.py
    python bench/account.py --gpu b200 --batch 64 --models mobilenet_v2 --json account.jsonl
    python bench/account.py --steps --only "bert training"

ResNet-50 and MobileNetV2 at 224 pixels and the Transformer (base, sentences of 64 words) are
compiled for a GPU: inference in bfloat16 with constant weights, training in float32 and in
bfloat16. Bytes are those of the loads and stores of their kernels; the ideal reads each input of a
step once and writes each output once (docs/inspect.md). With `--steps` the rows are those that
`gpu_models.py` times, each with its batch; `graphs` are the CUDA graphs of a step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fluid
from bench.device import models
from bench.device.models import Case
from bench.support.lines import append
from bench.support.table import Row, goal, table
from compiler.cost.gpu_limits import GPUS, Gpu
from compiler.cost.plan_cost import PlanCost
from compiler.debugging.explanation import Study, study_graph
from compiler.driver import feed_shapes
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.options import Options
from fluid.contrib.mixed_precision import decorate
from tests.support.nets import transformer, zoo

IMAGES = {"image": 224, "classes": 1000}
SETTINGS: dict[str, dict[str, Any]] = {
    "resnet50": IMAGES,
    "mobilenet_v2": IMAGES,
    "transformer": {"shape": transformer.BASE},
}
"""The models, with the settings of their papers."""

GOALS = {"resnet50": 60.0, "mobilenet_v2": 30.0}
"""MB per image in bfloat16 inference."""

FUSING = "fuse_pointwise"
"""The first pass that fuses."""

UPDATES = ("sgd", "momentum", "adam")
"""Name prefixes of optimizer update kernels."""

COLUMNS = {
    "model": "", "work": "", "dtype": "", "fused": "", "launches": ",d", "updates": ",d",
    "MB each": ".2f", "ideal": ".2f", "of ideal": ".2f", "GFLOP each": ".2f", "at least ms": ".2f",
    "copies": ",d", "on the host": ",d",
}  # fmt: skip


def measure(names: Sequence[str], gpu: Gpu, batch: int) -> Iterator[Row]:
    """Two rows per model and kind of work, before and after fusion."""
    for name in names:
        for work, dtype in (("inference", "bf16"), ("training", "fp32"), ("training", "bf16")):
            seen = compiled(name, work, dtype, batch, gpu)
            stages = [stage.name for stage in seen.stages]
            for fused, place in (("no", stages.index(FUSING) - 1), ("yes", -1)):
                kind = {"model": name, "work": work, "dtype": dtype, "fused": fused}
                yield {**kind, **_row(seen.accounts[place], gpu, batch)}


def compiled(name: str, work: str, dtype: str, batch: int, gpu: Gpu) -> Study:
    """Compile a model for a GPU, recording each pass."""
    trains, settings = work == "training", SETTINGS[name]
    optimizer = _mixed_precision(name) if trains and dtype == "bf16" else None
    network = zoo.build(fluid, name, train=trains, optimizer=optimizer, **settings)
    program = network.main if trains else network.test
    fetched = network.loss if trains else network.output
    feeds = [var.name for var in program.list_vars() if var.is_data]
    graph = to_graph(program, feed_shapes(program, feeds), [fetched.name])
    sizes = {size: batch for var in graph.feeds() for size in var.type.names}
    options = Options(dtype="fp32" if trains else dtype, gpu=gpu.target, libraries=trains)
    params = None if trains else weights(network.startup)
    return study_graph(name, graph, sizes, target="triton", params=params, options=options)


def measure_steps(cases: Sequence[Case], gpu: Gpu) -> Iterator[Row]:
    """A row per step that `gpu_models.py` times, after all passes."""
    for case in cases:
        seen = compiled_case(case, gpu)
        row = {**vars(case), **_row(seen.accounts[-1], gpu, case.batch)}
        yield row | {"graphs": seen.compiled.module.source.count(" = graph(")}


def compiled_case(case: Case, gpu: Gpu) -> Study:
    """Compile a step for a GPU, for the sizes of its batch, recording each pass."""
    network, fed = models.network(case), models.arrays(models.feed(case))
    shapes = {name: array.shape for name, array in fed.items()}
    graph = to_graph(network.main, feed_shapes(network.main, shapes), [network.result.name])
    dtype = "fp32" if case.trains else case.dtype
    options = Options(dtype=dtype, gpu=gpu.target, libraries=case.trains)
    params = None if case.trains else weights(network.startup)
    return study_graph(case.model, graph, {}, target="triton", params=params, options=options)


def _mixed_precision(name: str) -> Any:
    """The optimizer of a model, with bfloat16 mixed precision."""
    plain = zoo.MODELS[name].optimizer
    return lambda module: decorate(plain(module), dtype="bfloat16")


def weights(startup: Any) -> dict[str, Any]:
    """Initial weights by name."""
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        fluid.Executor().run(startup)
    return dict(scope.arrays())


def _row(each: PlanCost, gpu: Gpu, batch: int) -> Row:
    total = each.total()
    return {
        "launches": each.launches,
        "updates": sum(k.kernel.startswith(UPDATES) for k in each.kernels),
        "MB each": total.moved / batch / 1e6,
        "ideal": each.least / batch / 1e6,
        "of ideal": total.moved / each.least,
        "GFLOP each": (total.operations + total.products) / batch / 1e9,
        "at least ms": each.seconds(gpu) * 1e3,
        "copies": len([k for k in each.kernels if k.side.value == "copy"]),
        "on the host": len([k for k in each.kernels if k.side.value == "host"]),
    }


def report_steps(rows: Sequence[Row], gpu: Gpu) -> str:
    """The table of the steps that `gpu_models.py` times."""
    columns = {"model": "", "work": "", "dtype": "", "batch": "d", "tokens": "d"}
    columns |= {"launches": ",d", "graphs": "d"}
    columns |= {name: form for name, form in COLUMNS.items() if name not in (*columns, "fused")}
    return table(f"Steps on {gpu.name}: MB moved and GFLOP computed for each sample", rows, columns)


def report(rows: Sequence[Row], gpu: Gpu, batch: int) -> str:
    """The table, and whether goals are met."""
    title = f"Kernels of {gpu.name}, batch {batch}: MB moved and GFLOP computed for each of it"
    lines = [table(title, rows, COLUMNS)]
    for row in (row for row in rows if row["fused"] == "yes"):
        wanted = GOALS.get(row["model"])
        if row["work"] == "inference" and wanted is not None:
            text = f"{row['model']}: {row['MB each']:.1f} MB an image"
            lines.append(goal(text, row["MB each"] <= wanted, f"≤ {wanted:.0f} MB"))
        if row["work"] == "training":
            text = f"{row['model']}, {row['dtype']}: updates in {row['updates']} launch"
            lines.append(goal(text, row["updates"] == 1, "1"))
    return "\n".join(lines)


def main() -> None:
    """Print the table; write it to a file if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", choices=sorted(GPUS), default="h200")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--models", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    parser.add_argument("--steps", action="store_true", help="the steps of gpu_models.py instead")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="steps with a word")
    options = parser.parse_args()
    gpu = GPUS[options.gpu]
    if options.steps:
        rows = list(measure_steps(models.chosen(options.only), gpu))
        print(report_steps(rows, gpu))
    else:
        rows = list(measure(options.models, gpu, options.batch))
        print(report(rows, gpu, options.batch))
    if options.json:
        append(options.json, {"account": rows})


if __name__ == "__main__":
    main()
