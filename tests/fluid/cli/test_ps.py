"""`fluid ps`: messages without servers, and merged traces."""

import json
from pathlib import Path

import pytest

from fluid.cli import main as cli
from runtime.ps.telemetry.trace import RoleTrace


def test_traces_are_joined_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for role in ("trainer", "server"):
        trace = RoleTrace(str(tmp_path / "traces"), role, 0, "a:1" if role == "server" else "")
        trace.rows[0] = "steps"
        trace.span("update", 0, 1, step=3)
        trace.write()
    output = tmp_path / "out" / "trace.json"
    assert cli.main(["ps", "trace", str(tmp_path / "traces"), "-o", str(output)]) == 0
    assert str(output) in capsys.readouterr().out
    events = json.loads(output.read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert [name.partition(",")[0] for name in names] == ["server 0 (a:1)", "trainer 0"]
    assert [e["args"]["step"] for e in events if e["ph"] == "X"] == [3, 3]


def test_a_folder_without_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ps", "trace", str(tmp_path)]) == cli.USAGE_ERROR
    assert "FLUID_PS_TRACE" in capsys.readouterr().err


def test_something_to_look_at_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["ps"])
    assert "WHAT" in capsys.readouterr().err
