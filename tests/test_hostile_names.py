"""Names and texts of models and users that try to run code, leave a quoted text or a folder.

Every string of every recorded model is renamed by `tools/verify/attack.py strings`; here are a few models
and families of each, and one test for every place where such a string once got through.
"""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.triton.module_writer import TritonModuleWriter
from compiler.codegen.writer import Names, Writer
from compiler.driver import feed_shapes
from compiler.errors import CompileError, did_you_mean
from compiler.ir.conversion.graph_to_program import var_names
from compiler.ir.graph import Graph
from compiler.ir.program import Program as PlainProgram
from compiler.ir.text.parser import parse
from compiler.ir.text.printer import same, show
from compiler.ir.types import DType, TensorType
from compiler.ops.control.print import Print, printed_text
from compiler.support.escape import (
    dot_string,
    expect_one_line,
    html_text,
    json_line,
    one_line,
    printable_lines,
    script_json,
)
from fluid.cli.model import CommandError
from fluid.cli.terminal import Shown
from fluid.cli.values.arrays import write_arrays
from runtime.files.checkpoint import CheckpointError, load_tensor, tensor_path
from tools.verify.attacks.holds import command, every_name, harmless, same_kernels, shape_of_dot
from tools.verify.attacks.payloads import (
    BREAKS,
    CODE,
    PAYLOADS,
    WORDS,
    ends_lines,
    executed,
    families,
    steers,
)
from tools.verify.attacks.renaming import originals
from tools.verify.attacks.strings import Tally, attack_all, attack_each

ALL = {original.name: original for original in originals()}
LINE, LOOP = ALL["fit_a_line"], ALL["while_power"]
ROW = TensorType(DType.FP32, (1, 2))
HOSTILE = ("line break 0xa", "line break 0x2028, indented", "end of a label", "script", "version",
           "host", "clear screen", "collisions", "words of Python", "NUL, at the end")  # fmt: skip


def net(x: str = "x", y: str = "y", w: str = "w") -> tuple[Any, Any, Any]:
    """A program with a product that reads the feed `x` and the parameter `w` and writes `y`."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        inputs = fluid.data(name=x, shape=[None, 3], dtype="float32")
        hidden = fluid.layers.fc(inputs, size=2, param_attr=fluid.ParamAttr(name=w))
        out = main.global_block().create_var(name=y, dtype="float32", shape=[-1, 2])
        main.global_block().append_op("relu", {"X": [hidden.name]}, {"Out": [y]}, {})
    return main, startup, out


# ---- whole models ----


def held(tally: Tally) -> None:
    """Every case of an attack held."""
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.cases


@pytest.mark.parametrize("check", ["numbers", "code", "texts", "commands"])
def test_models_with_hostile_names_are_the_same_models(check: str) -> None:
    tally = Tally()
    ways = {what: families()[what] for what in HOSTILE}
    attack_all([LINE], ways, [check], tally)
    if check != "commands":
        attack_all([LOOP], {what: ways[what] for what in HOSTILE[:4]}, [check], tally)
    held(tally)
    assert not tally.refused


def test_kernels_of_models_with_hostile_names_compute_the_same() -> None:
    for what in ("line break 0xa, indented", "version"):
        same_kernels(every_name(LINE, families()[what], CODE), harmless(LINE))
    assert not executed()


def test_models_with_one_hostile_string_are_models_or_rejected() -> None:
    tally = Tally()
    attack_each([LINE, LOOP], 15, tally)
    held(tally)
    assert min(tally.held.total(), tally.refused.total()) > 10


# ---- one function a language ----


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_escaped_text_keeps_its_place(payload: str) -> None:
    assert not ends_lines(one_line(payload))
    assert not steers(printable_lines(payload))
    assert expect_one_line(one_line(payload)) == one_line(payload)
    assert not ends_lines(json_line({"name": payload}))
    assert shape_of_dot(dot_string(payload, payload)) == ['""']
    assert not set(html_text(payload)) & set("<>\"'")
    assert not set(script_json([payload])) & set("<>&")
    assert not steers(script_json([payload]))


@pytest.mark.parametrize("end", [*BREAKS, "\0", "\x1b", "\u202e", "\ud800"])
def test_a_line_of_code_with_a_line_end_in_it_is_rejected(end: str) -> None:
    with pytest.raises(ValueError, match="a line of code contains"):
        Writer().line(f"a = 1  # x{end}")
    writer = Writer()
    writer.comment(f"x{end}")
    assert len(writer.lines) == 1
    assert not ends_lines(writer.lines[0])


def test_kernels_whose_lines_were_not_escaped_are_rejected() -> None:
    study = every_name(LINE, lambda index: f"name_{index}", "x").study("triton")
    frame = TritonModuleWriter(study.compiled.plan)
    written = type("Written", (), {"helpers": [], "lines": ["def f(x):", "    # a\nb"]})()
    with pytest.raises(ValueError, match="a line of code contains"):
        frame._carry(written)


def test_python_names_are_identifiers() -> None:
    names = Names(set())
    created = [names.make(each) for each in [*PAYLOADS.values(), *WORDS, "", "0", "x" * 1_000_000]]
    assert all(each.isidentifier() and len(each) < 120 for each in created)
    assert len(set(created)) == len(created)


def test_sizes_of_feeds_are_python_names_and_never_shared() -> None:
    program = PlainProgram()
    names = ("a.b", "a:b", "0", "1_0", "", "\n", "x" * 1000)
    for name in names:
        program.blocks[0].add_var(name, shape=(-1, -1))
    result = feed_shapes(program, names)
    sizes = [str(result[name][1]) for name in names]
    assert all(size.isidentifier() for size in sizes)
    assert len(set(sizes)) == len(names)


# ---- names that look like what the compiler calls things ----


def test_labels_are_one_line_and_unique() -> None:
    graph = Graph()
    first = graph.feed("w", ROW)
    later = graph.next_version(first, ROW, same_storage=False)
    others = [graph.var(name, ROW) for name in ("w#1", '"w#1"', "w\n", "\ud800", "w@host", "")]
    labels = [var.label for var in (first, later, *others)]
    assert labels[:3] == ["w", "w#1", '"w#1"']
    assert len(set(labels)) == len(labels)
    assert not any(map(ends_lines, labels))


def test_results_are_returned_by_other_names() -> None:
    graph = Graph()
    x, copy = graph.feed("x", ROW), graph.var("x@host", ROW)
    graph.op("assign", {"X": [x]}, {"Out": [copy]})
    graph.return_as([(copy, 'a "b"')])
    assert 'return x@host as "a \\"b\\""' in show(graph)
    assert parse(show(graph)).fetches == ['a "b"']
    assert same(parse(show(graph)), graph)
    graph.results = [x]
    assert graph.fetches == ["x"]


def test_versions_of_a_graph_have_names_of_their_own_in_a_program() -> None:
    graph = Graph()
    x, taken = graph.feed("x", ROW), graph.feed("w@v1", ROW)
    first = graph.var("w", ROW)
    graph.op("assign", {"X": [x]}, {"Out": [first]})
    second = graph.next_version(first, ROW, same_storage=False)
    graph.op("assign", {"X": [taken]}, {"Out": [second]})
    out = graph.var("out", ROW)
    graph.op("elementwise_add", {"X": [first], "Y": [second]}, {"Out": [out]}, last=True)
    graph.results = [out]
    names = var_names(graph)
    assert names[taken] == "w@v1"
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize("name", ["x#1", "#", "x@host", "@host", "x@device", "%s", ":", '"', "", "0",
                                  "print", "reversed", "x" * 1_000_000])  # fmt: skip
@pytest.mark.parametrize("role", ["x", "y", "w"])
def test_variables_may_have_any_name(name: str, role: str) -> None:
    if (name, role) == ("", "w"):  # refused, as by the reference
        with pytest.raises(ValueError, match="can not be empty"):
            net(w="")
        return
    names = {"x": "in", "y": "out", "w": "weight", role: name}
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        main, startup, out = net(**names)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        feed = {names["x"]: np.ones((2, 3), np.float32)}
        (result,) = exe.run(main, feed=feed, fetch_list=[out])
        weight = np.array(fluid.global_scope().find_var(names["w"]).get_tensor())
    np.testing.assert_allclose(result, np.maximum(feed[names["x"]] @ weight, 0), rtol=1e-6)


@pytest.mark.parametrize("name", ["@EMPTY@", "x@LOD0", "\ud800", "x\udcff"])
def test_names_that_no_variable_can_have_are_rejected(name: str) -> None:
    with pytest.raises(CompileError, match="is not a valid variable name"):
        net(x=name)


def test_long_names_are_not_compared() -> None:
    assert did_you_mean("ab" * 500_000, ["ba" * 500_000]) == ""


# ---- what is fed ----


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The predictor of a saved model that is fed `x`."""
    folder = tmp_path_factory.mktemp("model")
    with fluid.scope_guard(fluid.Scope()):
        main, startup, out = net()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        fluid.io.save_inference_model(str(folder), ["x"], [out], exe, main)
    return fluid.create_predictor(str(folder))


@pytest.mark.parametrize("key", [0, None, ("x",), b"x", 1.5])
def test_keys_of_a_feed_are_names(predictor: Any, key: Any) -> None:
    with pytest.raises(TypeError, match="a key of feed must be a name"):
        predictor.run({key: np.ones((2, 3), np.float32)})
    with pytest.raises(TypeError, match="a key of feed must be a name"):
        predictor.run({"x": np.ones((2, 3), np.float32), key: 1})


@pytest.mark.parametrize("value", [10**400, ((1.0, 2.0), (3.0,)), object(), None, "text", {}])
def test_values_that_are_no_arrays(predictor: Any, value: Any) -> None:
    with pytest.raises(CompileError, match=r"(feed|fed Variable) 'x'"):
        predictor.run({"x": value})


@pytest.mark.parametrize("at_once", ["1", 0, 1.5])
def test_at_once_is_a_number(at_once: Any) -> None:
    folder = Path(__file__).parents[0] / "golden" / "inference" / "fit_a_line__separate"
    with pytest.raises(ValueError, match="at_once is how many runs"):
        fluid.create_predictor(str(folder), at_once=at_once)


# ---- files ----


@pytest.mark.parametrize("name", ["../../x", "/x", "a/../b", "a\0b", ".", "a/", "", "x" * 256,
                                  "a/" + "é" * 128, "\ud800"])  # fmt: skip
def test_names_that_are_no_files_of_a_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="variable name"):
        tensor_path(tmp_path, name)


@pytest.mark.parametrize("name", ["../x", "/x", "a\\..\\b", "a\0b", "\ud800", "x" * 70_000])
def test_names_that_no_archive_can_hold(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match=r"no array of a \.npz"):
        write_arrays(tmp_path / "a.npz", {name: np.zeros(1)})
    assert not list(tmp_path.iterdir())
    write_arrays(tmp_path / "a.npz", {"a/b#1": np.zeros(1)})
    assert zipfile.ZipFile(tmp_path / "a.npz").namelist() == ["a/b#1.npy"]


def test_a_parameter_cannot_be_the_file_of_the_program(tmp_path: Path) -> None:
    with fluid.scope_guard(fluid.Scope()):
        main, startup, out = net(w="__model__")
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        with pytest.raises(ValueError, match="would be one file"):
            fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe, main)
        assert not list(tmp_path.iterdir())
        fluid.io.save_inference_model(
            str(tmp_path), ["x"], [out], exe, main, params_filename="params"
        )
    assert fluid.create_predictor(str(tmp_path), params_filename="params").feed_names == ["x"]


# ---- the terminal ----


def test_printed_text_steers_no_terminal() -> None:
    printed = io.StringIO()
    text = "".join(PAYLOADS.values())
    assert Shown(printed).write(text) == len(text)
    assert not steers(printed.getvalue())


def test_messages_of_errors_are_printable() -> None:
    error = CompileError("\x1b[2J", op="y\n = f()", source="a\rb", hint="\u202e")
    assert not steers(str(error))
    assert str(error).count("\n") == 3
    assert not steers(str(CheckpointError("\x1b[2J\ud800")))


def test_messages_about_files_are_printable(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        load_tensor(tensor_path(tmp_path, "w\x1b[2J\n"))
    assert "w\\x1b[2J\\n: its folder has no files" in str(missing.value)


def test_print_ops_print_text() -> None:
    printer = type("Printer", (), {n: v.default for n, v in Print.attrs.items()})()
    printer.message, printer.In_name = "\x1b]0;evil\x07", "a\n\x1b[2J"
    assert not steers(printed_text(printer, np.zeros(2), ()))


@pytest.mark.parametrize("word", ["\udcff", "x\x1b[2J", "a" * 5000, "x=\udcff", "é"])
def test_words_of_a_command_line_that_are_no_utf_8(word: str, tmp_path: Path) -> None:
    folder = Path(__file__).parents[0] / "golden" / "inference" / "fit_a_line__separate"
    for words in (["infer", word], ["infer", folder, "--input", word], ["inspect", word],
                  ["inspect", folder, "--fetch", word], ["weights", folder, "--only", word],
                  ["convert", word, tmp_path / "o"], ["compare", folder, word]):  # fmt: skip
        code, printed = command(words)
        assert code == 2, printed
        assert not steers(printed)


def test_bytes_of_a_command_line(tmp_path: Path) -> None:
    command_line = [sys.executable, "-m", "fluid", "infer", b"\xff\x1b[2J", "--describe"]
    done = subprocess.run(command_line, capture_output=True, check=False, cwd=tmp_path,
                          env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])})  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(b"fluid infer: \\udcff\\x1b[2J does not exist")
