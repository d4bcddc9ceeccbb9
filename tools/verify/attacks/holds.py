"""Invariants of a model with hostile strings, compared with the same model with plain ones."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from compiler.codegen.module import Module
from compiler.debugging.explanation import Study, study_graph
from compiler.driver import feed_shapes
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.model_format.program_desc import load_program
from compiler.ir.model_format.protobuf import Message, dump
from compiler.ir.text.dot import dot
from compiler.ir.text.parser import parse, parse_program
from compiler.ir.text.printer import show
from compiler.passes.dump import row
from compiler.support.cached_property import cached_property
from fluid.cli import main as cli
from fluid.framework import Program
from fluid.inference.packages import load_compiled
from fluid.inference.predictor import Predictor
from fluid.saving.inference_model import InferenceModel, edges
from runtime.device import CUDAPlace
from runtime.loader import load
from runtime.sizes import LOD
from runtime.tensors.lod_tensor import LoDTensor
from tools.verify.attacks.payloads import CODE, Names, steers
from tools.verify.attacks.renaming import Original, renamed, saved
from tools.verify.attacks.texts import shape_of_dot, shape_of_html, shape_of_python


@dataclass
class Renamed:
    """A model with replaced strings."""

    original: Original
    message: Message
    names: Mapping[str, str]
    studies: dict[str, Study] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        """The program, parsed from the bytes of the message."""
        return load_program(dump(self.message), "model", factory=Program)

    @cached_property
    def params(self) -> dict[str, LoDTensor]:
        """The parameters by their new names."""
        return {self.names.get(old, old): param for old, param in self.original.params.items()}

    @cached_property
    def feed(self) -> dict[str, Any]:
        """The feed by the new names."""
        return {self.names.get(old, old): array for old, array in self.original.feed.items()}

    @cached_property
    def numbers(self) -> np.ndarray:
        """The output for its feed."""
        (output,) = self.predictor().run(self.feed)
        return np.asarray(output)

    def predictor(self) -> Predictor:
        """A predictor of the model."""
        feeds, fetches = (tuple(edges(self.program, kind, "model")) for kind in ("feed", "fetch"))
        return Predictor(InferenceModel(self.program, feeds, fetches, self.params))

    def study(self, target: str = "numpy") -> Study:
        """Its recorded compilation, with every dynamic size 8; cached."""
        if target not in self.studies:
            self.studies[target] = self._study(target)
        return self.studies[target]

    def _study(self, target: str) -> Study:
        feeds, fetches = (edges(self.program, kind, "model") for kind in ("feed", "fetch"))
        shapes = feed_shapes(self.program, [var.name for var in feeds])
        graph = to_graph(self.program, shapes, [var.name for var in fetches])
        sizes = {name: 8 for var in graph.feeds() for name in var.type.names}
        arrays = {n: param.array for n, param in self.params.items() if param.array is not None}
        return study_graph("model", graph, sizes, params=arrays, like=self.program, target=target)

    @property
    def fetched(self) -> list[str]:
        """The names of its outputs."""
        return [var.name for var in edges(self.program, "fetch", "model")]


def every_name(original: Original, names: Names, books: str) -> Renamed:
    """The model with all variables renamed, and another text in all bookkeeping attributes."""
    other = {name: names(index) for index, name in enumerate(original.variables)}
    return Renamed(original, renamed(original.message, other, books), other)


def harmless(original: Original) -> Renamed:
    """The model with plain names."""
    return every_name(original, lambda index: f"name_{index}", "train.py")


# ---- what must hold of a model -------------------------------------------------------------------


def same_numbers(model: Renamed, plain: Renamed) -> None:
    """Check that the numbers equal those that the reference recorded."""
    np.testing.assert_array_equal(model.numbers, plain.numbers)
    np.testing.assert_allclose(model.numbers, model.original.result, rtol=1e-4, atol=1e-5)
    assert model.predictor().fetch_names == model.fetched


def same_code(model: Renamed, plain: Renamed) -> None:
    """Check that the NumPy and Triton modules have the same syntax trees, and their fetches."""
    for target in ("numpy", "triton"):
        module, wanted = (side.study(target).module for side in (model, plain))
        same_shape(shape_of_python(module.source), shape_of_python(wanted.source), target)
        printable(module.source)
        read = Module.parse(module.source)
        assert [fetch.name for fetch in read.fetches][:1] == model.fetched
        assert {feed.name for feed in read.feeds} >= set(model.feed)


def printable(text: str) -> None:
    """Raise AssertionError if a text controls a terminal."""
    escapes = steers(text)
    assert not escapes, (
        f"it holds {escapes} at {text[max(text.index(escapes[0]) - 60, 0) :][:90]!r}"
    )


def same_shape(found: str, wanted: str, what: str) -> None:
    """Raise AssertionError with the first difference of two texts."""
    pairs = zip(found, wanted, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found), len(wanted)))
    around = slice(max(place - 80, 0), place + 40)
    assert found == wanted, f"{what}: {found[around]!r} is not {wanted[around]!r}"


def same_texts(model: Renamed, plain: Renamed) -> None:
    """Check that the text form parses to the same graph, and drawing, page and table are alike."""
    ours, theirs = model.study(), plain.study()
    text = show(model.program)
    assert show(parse_program(text)) == text
    assert len(text.splitlines()) == len(show(plain.program).splitlines())
    for mine, other in zip(ours.stages, theirs.stages, strict=True):
        assert show(parse(mine.text)) == mine.text
        first, second = (" ".join(shape_of_dot(dot(parse(side.text)))) for side in (mine, other))
        same_shape(first, second, "DOT")
        line = row(mine)
        assert len(line.splitlines()) == 1 and json.loads(line)["name"] == mine.name
        printable(mine.text + dot(parse(mine.text)) + line)
    page = ours.html({"from": str(model.fetched)})
    assert shape_of_html(page) == shape_of_html(theirs.html({"from": "x"}))
    printable(f"{page}{ours}{ours.compiled.plan}")
    assert len(str(ours.compiled.plan).splitlines()) == len(str(theirs.compiled.plan).splitlines())


def same_commands(model: Renamed, plain: Renamed) -> None:
    """Check that commands print plain text; a package runs and computes the same numbers."""
    with TemporaryDirectory(prefix="attack-") as folder:
        path = saved(model.original, model.message, model.names, Path(folder, "model"))
        package, page = Path(folder, "package"), Path(folder, "page.html")
        files = ["--params-filename", "params"]
        for words in (
            ["infer", path, *files, "--describe"],
            ["weights", path, *files],
            ["inspect", path, *files, "--html", page, "--dump", Path(folder, "dump")],
            ["compile", path, *files, "--target", "numpy", "-o", package],
            ["infer", package, "--describe"],
        ):
            code, printed = command(words)
            assert code == 0, f"fluid {words[0]}: {printed}"
            printable(printed)
            forged = (CODE, " " * 8 + CODE)  # wrapped lines of tables begin with four spaces
            assert not any(line.startswith(forged) for line in printed.splitlines()), printed
        (output,) = load_compiled(package).run(model.feed)
        np.testing.assert_allclose(np.asarray(output), plain.numbers, rtol=1e-4, atol=1e-5)
        code, printed = command(["infer", path, *files, "--input", Path(folder, "missing.npy")])
        assert code == 2, printed
        printable(printed)


def command(words: Sequence[object]) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and output."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            code = cli.main([*map(str, words)])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, printed.getvalue()


def same_kernels(model: Renamed, plain: Renamed) -> None:
    """Check that the kernels, in Triton's interpreter, compute the reference's numbers.

    The environment variable TRITON_INTERPRET must be 1 before Triton is imported.
    """
    study = model.study("triton")
    state = {name: np.array(array) for name, array in study.params.items()}
    run = load(study.module, CUDAPlace(0), state)
    feed = dict(model.feed)
    for name, value in model.feed.items():
        if isinstance(value, LoDTensor):
            feed[name] = np.asarray(value)
            levels = enumerate(value.lod())
            feed |= {f"{name}{LOD}{i}": np.array(level, np.int64) for i, level in levels}
    result = run(feed)[0]
    np.testing.assert_allclose(result, model.original.result, rtol=1e-3, atol=1e-4)


CHECKS: dict[str, Callable[[Renamed, Renamed], None]] = {
    "numbers": same_numbers, "code": same_code, "texts": same_texts, "commands": same_commands,
    "kernels": same_kernels,
}  # fmt: skip
