"""Log lines with role and step; traces of all roles joined on one clock."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.telemetry.logs import LOGGER, RoleLog, write_logs
from runtime.ps.telemetry.merge import merge_traces
from runtime.ps.telemetry.trace import RoleTrace
from tests.runtime.ps.world import receive, send, world

STEPS = 3


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Reads what was written to stderr; the logger is as before behind the test."""
    handlers, level = list(LOGGER.handlers), LOGGER.level
    yield lambda: capsys.readouterr().err
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(level)
    LOGGER.propagate = True


def run_job(**settings: Any) -> None:
    """Two trainers make three steps."""

    def train(number: int) -> None:
        trainer = job.trainer(number)
        trainer.fetch_barrier([job.endpoint], number)  # as startup programs do
        for _ in range(STEPS):
            send(trainer, job.endpoint, 1.0)
            receive(trainer, job.endpoint)
            trainer.fetch_barrier([job.endpoint], number)
        trainer.complete()

    with world(**settings) as job:
        threads = [Thread(target=train, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        job.thread.join(10)


def test_lines_of_json_report_role_and_step(stderr: Callable[[], str]) -> None:
    run_job(log="json")
    lines = [json.loads(line) for line in stderr().splitlines()]
    assert all(
        {"time", "level", "role", "number", "step", "message"} <= line.keys() for line in lines
    )
    said = [(line["role"], line["message"], line["step"]) for line in lines]
    assert ("server", "serving", 0) in said
    assert said.count(("trainer", "completed", STEPS)) == 2
    assert ("server", "all trainers have completed", STEPS) in said
    connected = [line for line in lines if line["message"] == "trainer connected"]
    assert sorted(line["trainer"] for line in connected) == [0, 1]


def test_lines_of_text(stderr: Callable[[], str]) -> None:
    write_logs("text")
    RoleLog("trainer", 3, lambda: 17).warning("lost\nit", server="a:1")
    line = stderr()
    assert line.endswith("WARNING trainer 3, step 17: lost\\nit server=a:1\n")


def test_without_the_setting_programs_configure_the_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "fluid.ps"):
        RoleLog("server", 0, lambda: 1).info("serving")
    assert caplog.messages == ["server 0, step 1: serving"]


def test_progress_is_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    step = 100
    log = RoleLog("server", 0, lambda: step)
    with caplog.at_level(logging.INFO, "fluid.ps"):
        log.progress(5.0)
        step = 150
        log.progress(6.0)
        log.progress(15.0, sent=7)
        log.progress(40.0)
    assert caplog.messages == ["server 0, step 150: progress steps_a_second=5.0 sent=7"]


def test_an_unknown_form_is_an_error() -> None:
    with pytest.raises(WireError, match="FLUID_PS_LOG is 'xml', expected text or json"):
        Settings.from_env({"FLUID_PS_LOG": "xml"})


def test_traces_of_all_roles_are_joined(tmp_path: Path) -> None:
    run_job(trace_dir=str(tmp_path))
    events = json.loads(merge_traces(tmp_path))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [name.split()[0] for _, name in sorted(names.items())] == [
        "server",
        "trainer",
        "trainer",
    ]
    spans = [event for event in events if event["ph"] == "X"]
    assert [e["args"]["step"] for e in spans if e["name"] == "update"] == [1, 2, 3]
    halves = [e["name"] for e in spans if e["name"] in ("compute", "exchange")]
    assert halves.count("exchange") == 2 * STEPS
    assert max(event["dur"] for event in spans) < 60e6  # microseconds
    expect_arrows(events)
    assert min(event["ts"] for event in events if "ts" in event) == 0.0


def expect_arrows(events: list[dict[str, Any]]) -> None:
    """Each arrow begins before it ends, in another process; one each way, step and trainer."""
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert len(begins) == 2 * 2 * STEPS
    for name, end in ends.items():
        assert begins[name]["pid"] != end["pid"]
        late = begins[name]["ts"] - end["ts"]
        assert late <= 5e3  # microseconds by which clocks of processes are estimated wrongly


def test_clocks_of_machines_are_compared(tmp_path: Path) -> None:
    server = RoleTrace(str(tmp_path), "server", 0, "a:1")
    server._ahead += 5_000_000_000  # its clock is five seconds ahead
    trainers = [RoleTrace(str(tmp_path), "trainer", number) for number in range(2)]
    trainers[1]._ahead += 2_000_000_000
    trainers[0].clocks["a:1"], trainers[1].clocks["a:1"] = 5_000_000_000, 3_000_000_000
    for each in (server, *trainers):
        each.span("work", 0, 1)
        each.write()
    events = json.loads(merge_traces(tmp_path))["traceEvents"]
    starts = [event["ts"] for event in events if event["ph"] == "X"]
    assert max(starts) - min(starts) < 1e6  # microseconds: the clocks differ by 2 s at least


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": [1], "otherData": {"clocks": {}}}', "[" * 100000]
)
def test_damaged_traces_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "server_0.1.json").write_text(text)
    with pytest.raises(WireError, match=r"server_0\.1\.json is not a trace of a server or trainer"):
        merge_traces(tmp_path)


def test_a_folder_without_traces_reports_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(WireError, match="has no traces"):
        merge_traces(tmp_path)
