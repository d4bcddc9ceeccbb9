"""All GPU tests and measurements in one run of under nine minutes: `make gpu`.

    python bench/gpu.py                          # tests, compute-sanitizer, kernels; on the GPU
    python bench/gpu.py --out results --minutes 5

Tests marked `gpu` and `device` run on the GPU (including recorded ops and trainings), those of
kernels once more under compute-sanitizer if it is installed, then `kernels.py`. All results are
written to results/<device>.json, with a readable summary. Nothing is fetched or installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench import kernels
from bench.support.lines import machine

ROOT = Path(__file__).resolve().parents[1]

SHARES = {"tests": 0.55, "sanitizer": 0.15, "kernels": 0.3}
"""Fraction of the time for each stage; unused time is available to later stages."""

SANITIZED = ("tests/codegen/test_triton.py", "tests/codegen/test_triton_epilogue.py")
"""Tests small enough for a tool that slows kernels down a hundredfold."""

PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("-m", "gpu or device"),
)

OWN = {"PYTHONUNBUFFERED": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Environment of the stages: installed third-party pytest plugins are not loaded."""

_GRACE = 10
"""Seconds that a command has to report its findings after its time is up."""

_COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed)")
_LAST = re.compile(r"^.* in [\d.]+s.*$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_FOUND = re.compile(r"ERROR SUMMARY: (\d+) error")
_REFUSED = "Device not supported"


@dataclass(frozen=True)
class Ended:
    """A command that ran to its end, or to its limit."""

    text: str
    seconds: float
    timed_out: bool
    code: int


def ran(command: Sequence[str], seconds: float) -> Ended:
    """Run a command in the project and show its output; interrupted when late, then killed."""
    begun, lines = time.monotonic(), list[str]()
    environment = {**os.environ, **OWN, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    limits = [
        Timer(max(1, seconds - _GRACE), os.kill, (process.pid, signal.SIGINT)),
        Timer(max(2, seconds), os.killpg, (process.pid, signal.SIGKILL)),
    ]
    try:
        for limit in limits:
            limit.start()
        for line in process.stdout or ():
            lines.append(line)
            print(line, end="", flush=True)
        code = process.wait()
    finally:
        for limit in limits:
            limit.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout:
            process.stdout.close()
    spent = time.monotonic() - begun
    return Ended("".join(lines), spent, spent >= seconds - _GRACE, code)


def tests(seconds: float) -> dict[str, Any]:
    """Run the tests that need or use a GPU, on as many processes as may share it."""
    workers = min(12, os.cpu_count() or 1)
    spread = ["-p", "xdist", "-n", str(workers)] if find_spec("xdist") else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu or device",
        "-p",
        "no:cacheprovider",
    ]
    ended = ran([*command, *spread], seconds)
    return _counted(ended)


def sanitizer(seconds: float) -> dict[str, Any]:
    """Run tests of kernels under compute-sanitizer, which checks every memory access."""
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    if tool is None:
        return {"left out": "compute-sanitizer is not installed"}
    watched = [tool, "--tool", "memcheck", "--target-processes", "all"]
    ended = ran([*watched, *PYTEST, "-x", *SANITIZED], seconds)
    if _REFUSED in ended.text:
        return {"left out": "compute-sanitizer does not support this device or its driver"}
    found = sum(int(number) for number in _FOUND.findall(ended.text))
    return _counted(ended) | {"memory errors": found}


def _counted(ended: Ended) -> dict[str, Any]:
    last = next(iter(_LAST.findall(ended.text)[::-1]), "")
    counts = {word.rstrip("s"): int(number) for number, word in _COUNTS.findall(last)}
    results = {"seconds": round(ended.seconds, 1), "timed out": ended.timed_out, **counts}
    return results | {"exit code": ended.code, "failures": _FAILED.findall(ended.text)}


def measured(seconds: float, out: Path) -> dict[str, Any]:
    """Run `kernels.py` in a separate process."""
    path = out / "kernels.json"
    # torch.compile is slow to begin with: half of the time is for it.
    command = [sys.executable, "bench/kernels.py", "--json", str(path), "--seconds"]
    ended = ran([*command, str(seconds / 2)], seconds)
    if not path.exists():
        return {"left out": f"bench/kernels.py ended with {ended.code}", "log": ended.text[-2000:]}
    found = json.loads(path.read_text())
    path.unlink()
    return found | {"seconds": round(ended.seconds, 1)}


def summary(results: Mapping[str, Any]) -> str:
    """Format the results as a page of Markdown."""
    rows, limits = results["kernels"].get("kernels", []), results["kernels"].get("limits", {})
    lines = [
        f"# {results['device']}",
        "",
        ", ".join(f"{name} {value}" for name, value in results["machine"].items()),
        "",
        f"- tests: {_stage_text(results['tests'])}",
        f"- compute-sanitizer: {_stage_text(results['sanitizer'])}",
        f"- kernels: {results['kernels'].get('left out', f'{len(rows)} cases')}",
        "",
        "```",
        kernels.report(rows, limits) if rows else results["kernels"].get("log", ""),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _stage_text(stage: Mapping[str, Any]) -> str:
    if "left out" in stage:
        return str(stage["left out"])
    numbers = [f"{stage[word]} {word}" for word in _WORDS if stage.get(word)]
    late = ["stopped at its limit"] if stage["timed out"] else []
    failed = [f"`{name}`" for name in stage["failures"]]
    return ", ".join([*numbers, *late, f"{stage['seconds']} s", *failed])


_WORDS = ("passed", "failed", "error", "skipped", "memory errors")


def main() -> int:
    """Run the stages within the time, and write their results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results", metavar="DIR")
    parser.add_argument("--minutes", type=float, default=8.5, help="in all (8.5 unless given)")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA GPU here: `make test` runs the same kernels in an interpreter")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    results = _all(given.out, given.minutes * 60)
    name = re.sub(r"\W+", "-", results["device"].lower()).strip("-")
    (given.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (given.out / f"{name}.md").write_text(summary(results), encoding="utf-8")
    print(f"\n{summary(results)}\nwritten: {given.out / name}.json and .md")
    return int(bool(results["tests"]["exit code"]))


def _all(out: Path, seconds: float) -> dict[str, Any]:
    begun, left = time.monotonic(), 1.0
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "machine": machine()}
    stages = {"tests": tests, "sanitizer": sanitizer, "kernels": lambda s: measured(s, out)}
    for name, stage in stages.items():
        rest = seconds - (time.monotonic() - begun)
        print(f"== {name}: at most {rest * SHARES[name] / left:.0f} s", flush=True)
        results[name] = stage(rest * SHARES[name] / left)
        left -= SHARES[name]
    return results


if __name__ == "__main__":
    sys.exit(main())
