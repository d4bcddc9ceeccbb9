"""`fluid bisect` and `fluid compare`: what they print, write and exit with."""

import json
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.ir.graph import Op
from compiler.passes.simplify import remove_identities
from fluid.cli.main import main

PROGRAM = """graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  (Out=h: f32[N, 4]) = mul(X=x, Y=w)  // net.py:1
  (Out=t: f32[N, 4]) = scale(X=h) {'scale': 2.0}  // net.py:2
  (Out=y: f32[N, 4]) = tanh(X=t)  // net.py:3
  return y
}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("net.ir")
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(op: Op, given: Any) -> bool:
        return op.kind == "scale"

    monkeypatch.setattr(remove_identities, "_is_identity", wrong)


def test_a_program_that_is_right_reports_it(program: Path, capsys: Any) -> None:
    assert main(["bisect", str(program)]) == 0
    told = capsys.readouterr()
    assert "every pass, and the code, keeps all numbers within 0.0001" in told.out
    assert "fluid bisect: fuse_pointwise: compared" in told.err


def test_the_printed_command_finds_the_fault_again(program: Path, fault: None, capsys: Any) -> None:
    assert main(["bisect", str(program)]) == 1
    told = capsys.readouterr().out
    lines = dict(line.split(None, 1) for line in told.splitlines() if line[:1].islower())
    assert lines["pass"] == "remove_identities"
    assert lines["op"] == "(Out=t) = scale(X=h) {'scale': 2.0}  net.py:2"
    assert lines["became"] == "(Out=t) = mul(X=x, Y=w)  net.py:1"
    assert lines["program"] == "smallest.ir: 2 ops of 3"
    wanted = "fluid bisect smallest.ir --input smallest.npz --only remove_identities"
    assert lines["again"] == wanted
    assert wanted in Path("smallest.ir").read_text()
    assert main([*shlex.split(wanted)[1:], "--out", "again.ir"]) == 1
    assert "program  again.ir: 2 ops of 2" in capsys.readouterr().out


def test_feeds_come_from_files(program: Path, capsys: Any) -> None:
    np.save("x.npy", np.ones((5, 4), "float32"))
    assert main(["bisect", str(program), "--input", "x=x.npy"]) == 0
    assert main(["bisect", str(program), "--input", "x.npy"]) == 0
    np.save("x64.npy", np.ones((5, 4)))
    with warnings.catch_warnings(action="always"):
        assert main(["bisect", str(program), "--input", "x64.npy"]) == 0
    assert "--input x holds float64, feed 'x' takes float32" in capsys.readouterr().err
    Path("two.ir").write_text(PROGRAM.replace("param w", "feed w"))
    assert main(["bisect", "two.ir", "--input", "x.npy"]) == 2
    assert "a .npy requires a name, like x=x.npy" in capsys.readouterr().err
    assert main(["bisect", str(program), "--input", "z=x.npy"]) == 2
    assert "has no feed and no state 'z'" in capsys.readouterr().err
    np.save("x.npy", np.ones((5, 3), "float32"))
    assert main(["bisect", str(program), "--input", "x=x.npy"]) == 2
    assert "'x' is f32[N, 4], got float32 [5, 3]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "small.txt"], "must end in .ir"),
        (["--only", "fuse_pointwize"], "did you mean 'fuse_pointwise'?"),
        (["--size", "M=3"], "has no open size 'M'; it has: N"),
    ],
)
def test_bisect_errors(program: Path, arguments: list[str], message: str, capsys: Any) -> None:
    assert main(["bisect", str(program), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_stages_agree(program: Path, capsys: Any) -> None:
    assert main(["compare", str(program)]) == 0
    told = capsys.readouterr().out
    assert "3 values in both, 0 beyond the tolerance" in told
    assert told.splitlines()[-1].split()[-1] == "agrees"


def test_the_first_difference_comes_first(program: Path, capsys: Any) -> None:
    other = Path("other.ir")
    other.write_text(PROGRAM.replace("2.0", "2.5"))
    assert main(["compare", str(program), str(other)]) == 1
    lines = capsys.readouterr().out.splitlines()
    first = lines.index(next(line for line in lines if "first differences" in line))
    assert lines[first + 1].split()[0] == "t"
    assert "  A  (Out=t) = scale(X=h) {'scale': 2.0}  net.py:2" in lines
    assert "  B  (Out=t) = scale(X=h) {'scale': 2.5}  net.py:2" in lines


def test_two_sets_of_passes_are_compared(program: Path, fault: None, capsys: Any) -> None:
    sides = [str(program), str(program), "--a", "all,-remove_identities", "--b"]
    assert main(["compare", *sides, "remove_identities"]) == 1
    assert main(["compare", *sides, "schedule"]) == 0


def test_a_generated_module_is_run(program: Path, capsys: Any) -> None:
    assert main(["inspect", str(program), "--dump", "stages"]) == 0
    assert main(["compare", str(program), "stages/main.py"]) == 0
    text = Path("stages/main.py").read_text()
    Path("stages/main.py").write_text(text.replace("multiply(h, 2,", "multiply(h, 1,"))
    assert main(["compare", str(program), "stages/main.py"]) == 1
    Path("stages/main.py").write_text(text.replace("'w'", "'folded'").replace('"w"', '"folded"'))
    assert main(["compare", str(program), "stages/main.py"]) == 2
    assert "stages/main.py needs 'folded', which has no value: pass it" in capsys.readouterr().err
    assert main(["compare", str(program), "stages/main.py", "--b", "all"]) == 2
    assert "passes cannot run on generated code" in capsys.readouterr().err


def test_compare_needs_feeds_of_both_models(program: Path, capsys: Any) -> None:
    other = Path("other.ir")
    other.write_text(PROGRAM.replace("param w", "param v").replace("Y=w", "Y=v"))
    assert main(["compare", str(program), str(other)]) == 2
    assert "net.ir reads 'w', which other.ir does not have" in capsys.readouterr().err


def test_a_trace_of_the_passes(program: Path, capsys: Any) -> None:
    assert main(["inspect", str(program), "--trace", "trace.json"]) == 0
    result = json.loads(Path("trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in result if event["ph"] == "X"]
    assert names[0] == "start" and "fuse_pointwise" in names
    assert "trace    trace.json" in capsys.readouterr().out
