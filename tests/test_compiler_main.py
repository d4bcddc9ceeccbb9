"""`python -m compiler`: its output for each `--emit`, and its errors."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.__main__ import main
from compiler.codegen.module import Module
from compiler.debugging.explanation import explain
from compiler.driver import compile_graph
from compiler.ir.text.printer import parse, same
from compiler.options import Options

ROOT = Path(__file__).resolve().parents[1]
TEXT = """\
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 3]
  (Out=h: f32[N, 3]) = mul(X=x, Y=w)
  (Out=y: f32[N, 3]) = scale(X=h) {'scale': 2.0}
  (Out=z: f32[N, 3]) = relu(X=y)
  (Out=unused: f32[N, 3]) = relu(X=h)
  return z
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.ir"
    path.write_text(TEXT, encoding="utf-8")
    return path


def emitted(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command line, expect success, return what it printed."""
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run the command line, expect exit code 2 and nothing printed, return the message."""
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert "Traceback" not in printed.err
    return printed.err


def test_no_passes_give_the_graph_back(capsys, file):
    assert same(parse(emitted(capsys, file, "--run", "")), parse(TEXT))


def test_default_is_the_full_pipeline(capsys, file):
    text = emitted(capsys, file)
    assert "unused" not in text
    assert "@k0" in text and "@s0" in text


def test_named_passes_alone(capsys, file):
    text = emitted(capsys, file, "--run", "fold_constants, eliminate_dead")
    assert "unused" not in text
    assert "@" not in text


def test_environment_leaves_passes_out(capsys, file, monkeypatch):
    monkeypatch.setenv("FLUID_DISABLE", "fuse_pointwise,fuse_epilogue")
    assert "@k" not in emitted(capsys, file)


def test_plan(capsys, file):
    text = emitted(capsys, file, "--emit", "plan")
    assert text.startswith("plan main(N) {")
    assert "step 0, fused:" in text


def test_dot(capsys, file):
    assert emitted(capsys, file, "--emit", "dot").startswith('digraph "main" {')


def test_module_is_written_and_runs_alone(capsys, file, tmp_path):
    output = tmp_path / "x.py"
    assert emitted(capsys, file, "--emit", "py", "-o", output) == ""
    assert Module.load(output).dims == ("N",)
    shown = subprocess.check_output([sys.executable, output, "N=3"], text=True, cwd=tmp_path)
    assert "z: float32[3, 3]" in shown


def test_standard_input_and_the_command_itself(file):
    done = subprocess.run(
        [sys.executable, "-m", "compiler", "-", "--run", "eliminate_dead"],
        input=TEXT, text=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=file.parent, check=True,
    )  # fmt: skip
    assert "unused" not in done.stdout


def test_refusals_are_printed_next_to_the_text(capsys, tmp_path):
    path = tmp_path / "norm.ir"
    path.write_text(NORM, encoding="utf-8")
    assert main([str(path), "--run", "fuse_batch_norm"]) == 0
    printed = capsys.readouterr()
    assert parse(printed.out).results[0].name == "y"
    assert printed.err.startswith("missed optimisation: fuse_batch_norm: ")
    assert "its input comes from no op" in printed.err


NORM = """\
graph main {
  feed x: f32[N, 2, 4, 4]
  param scale: f32[2]
  param bias: f32[2]
  param mean: f32[2]
  param variance: f32[2]
  (MeanOut=mean#1: f32[2] over mean, SavedMean=m: f32[2], SavedVariance=v: f32[2], \
VarianceOut=variance#1: f32[2] over variance, Y=y: f32[N, 2, 4, 4]) = batch_norm(Bias=bias, \
Mean=mean, Scale=scale, Variance=variance, X=x) {'is_test': True}
  return y
}
"""


def test_missing_file(capsys, tmp_path):
    path = tmp_path / "none.ir"
    assert refused(capsys, path) == f"compiler: {path}: No such file or directory\n"


def test_binary_file(capsys, tmp_path):
    path = tmp_path / "x.ir"
    path.write_bytes(b"graph \xff")
    assert f"{path}: not UTF-8 text: invalid start byte at byte 6" in refused(capsys, path)


def test_malformed_file_names_the_line(capsys, file):
    file.write_text(TEXT.replace("= scale", "= scalle"), encoding="utf-8")
    message = refused(capsys, file)
    assert f"{file}:5: " in message
    assert "did you mean 'scale'?" in message


def test_unknown_pass(capsys, file):
    assert "unknown pass 'fold'; known passes: resolve_sizes," in refused(
        capsys, file, "--run", "fold"
    )


def test_bad_order(capsys, file):
    message = refused(capsys, file, "--run", "reuse_memory")
    assert "pass 'reuse_memory' requires ORDERED" in message
    assert "hint:" in message


def test_unwritable_output_is_an_error(capsys, file, tmp_path):
    output = tmp_path / "none" / "x.py"
    assert str(output) in refused(capsys, file, "--emit", "py", "-o", output)


def test_unknown_form(file):
    with pytest.raises(SystemExit) as stopped:
        main([str(file), "--emit", "json"])
    assert stopped.value.code == 2


# ---- what one can watch ----


def test_passes_are_chosen_and_every_stage_is_left_in_files(capsys, file, tmp_path):
    assert emitted(capsys, file, "--dump", tmp_path / "all", "--stop-after", "schedule") == ""
    rows = [json.loads(row) for row in (tmp_path / "all/passes.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows][-1] == "schedule"
    text = emitted(capsys, file, "--only", "eliminate_dead")
    assert "unused" not in text and "@k0" not in text and "@s0" not in text
    assert "@k0" not in emitted(capsys, file, "--disable", "fuse_pointwise,fuse_epilogue")
    assert "unknown pass 'fuse'" in refused(capsys, file, "--only", "fuse")


def test_a_page_shows_the_whole_compilation(capsys, file, tmp_path):
    page = tmp_path / "page.html"
    assert emitted(capsys, file, "--html", page, "--dump", tmp_path / "all") == ""
    assert "def bind(" in page.read_text(encoding="utf-8")
    assert (tmp_path / "all/main.py").is_file()
    message = refused(capsys, file, "--html", page, "--run", "eliminate_dead")
    assert "--html shows a full compilation" in message


def test_every_compilation_leaves_its_stages_where_the_setting_specifies(tmp_path):
    options = Options.from_env({"FLUID_DUMP": str(tmp_path)})
    modules = [compile_graph(parse(text), options=options).module
               for text in (TEXT, TEXT, TEXT.replace("relu", "tanh"))]  # fmt: skip
    odd = parse(TEXT.replace("graph main", 'graph "../../odd"'))
    compile_graph(odd, options=Options(dump=str(tmp_path / "in")))
    assert [path.name for path in (tmp_path / "in").rglob("*.plan")] == [".._.._odd.plan"]
    shutil.rmtree(tmp_path / "in")
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert len(folders) == 2 and all(name.startswith("main-") for name in folders)
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    explain(modules[0])
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before
