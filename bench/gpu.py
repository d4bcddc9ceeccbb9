"""All GPU tests and measurements in one run of under nine minutes: `make gpu`.

    python bench/gpu.py              # tests, compute-sanitizer, kernels, models; on the GPU
    python bench/gpu.py --out results --minutes 5

Tests marked `gpu` and `device` run on the GPU (including recorded ops and trainings), those of
kernels once more under compute-sanitizer if it is installed, then `kernels.py`, and `gpu_models.py`
for as many models as there is time for. All results are written to results/<device>.json after each
stage, with a readable summary. The exit code is 1 if any stage fails: a test, a memory error, a
case of `kernels.py`, or a limit of time. Nothing is fetched or installed.
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

from bench import gpu_models, kernels
from bench.support.lines import machine

ROOT = Path(__file__).resolve().parents[1]

SHARES = {"tests": 0.4, "sanitizer": 0.12, "kernels": 0.28, "models": 0.2}
"""Fraction of the time for each stage; unused time is available to later stages."""

SANITIZED = ("tests/codegen/test_triton.py", "tests/codegen/triton/test_epilogues.py")
"""Tests small enough for a tool that slows kernels down a hundredfold."""

PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("-m", "gpu or device"),
)

OWN = {
    "PYTHONUNBUFFERED": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "TRITON_INTERPRET": "0",
}
"""Environment of the stages: third-party pytest plugins are not loaded, and Triton's interpreter is
not used, whatever else is found on PATH."""

ALONE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Environment of the sanitizer, which knows where an allocation ends."""

SEPARATE = (
    "import sys, pytest, runtime.gpu.cuda as cuda; cuda.SEPARATE_BUFFERS = True; "
    "sys.exit(pytest.main(sys.argv[1:]))"
)
"""Runs pytest with an allocation for each buffer."""

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


def ran(
    command: Sequence[str], seconds: float, variables: Mapping[str, str] | None = None
) -> Ended:
    """Run a command in the project and show its output; interrupted when late, then killed."""
    begun, lines = time.monotonic(), list[str]()
    environment = {**os.environ, **OWN, **(variables or {}), "PYTHONPATH": str(ROOT)}
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
    ended = ran([*watched, sys.executable, "-c", SEPARATE, *PYTEST[3:], *SANITIZED], seconds, ALONE)
    if _REFUSED in ended.text:
        return {"left out": "compute-sanitizer does not support this device or its driver"}
    errors = sum(int(number) for number in _FOUND.findall(ended.text))
    return _counted(ended) | {"memory errors": errors}


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
        return {"failed": f"bench/kernels.py ended with {ended.code}", "log": ended.text[-2000:]}
    results = json.loads(path.read_text())
    path.unlink()
    return results | {"seconds": round(ended.seconds, 1), "exit code": ended.code}


def modelled(seconds: float, out: Path) -> dict[str, Any]:
    """Run `gpu_models.py` in a separate process; no model begins in the last quarter."""
    path = out / "models.json"
    command = [sys.executable, "bench/gpu_models.py", "--json", str(path), "--seconds"]
    ended = ran([*command, str(0.75 * seconds)], seconds)
    if not path.exists():
        return {"failed": f"bench/gpu_models.py ended with {ended.code}", "log": ended.text[-2000:]}
    results = json.loads(path.read_text())
    path.unlink()
    return results | {"seconds": round(ended.seconds, 1), "exit code": ended.code}


def failed_stages(results: Mapping[str, Any]) -> list[str]:
    """The stages that found a failure, were stopped at their limit, or gave no results."""
    return [name for name in SHARES if _has_failed(results.get(name, {"failed": "not begun"}))]


def _has_failed(stage: Mapping[str, Any]) -> bool:
    if "left out" in stage:
        return False
    rows = stage.get("kernels", [])
    late = stage.get("timed out", False) or len(rows) < stage.get("cases", 0)
    wrong = stage.get("exit code") or stage.get("memory errors") or kernels.wrong_cases(rows)
    return bool("failed" in stage or late or wrong)


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
        f"- kernels: {results['kernels'].get('failed', _case_count(results['kernels']))}",
        f"- models: {_model_count(results.get('models', {}))}",
        f"- failed: {', '.join(failed_stages(results)) or 'nothing'}",
        "",
        "```",
        kernels.report(rows, limits) if rows else results["kernels"].get("log", ""),
        "```",
        "",
        "```",
        gpu_models.report(results.get("models", {}).get("models", []), results["device"]),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _model_count(stage: Mapping[str, Any]) -> str:
    return stage.get("failed") or f"{len(stage.get('models', []))} measured"


def _case_count(stage: Mapping[str, Any]) -> str:
    done = len(stage.get("kernels", []))
    return f"{done} of {stage.get('cases', done)} cases"


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
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA GPU here: `make test` runs the same kernels in an interpreter")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name(0)
    path = options.out / (re.sub(r"\W+", "-", device.lower()).strip("-") + ".json")
    results = _all({"device": device, "machine": machine()}, path, options.minutes * 60)
    path.with_suffix(".md").write_text(summary(results), encoding="utf-8")
    print(f"\n{summary(results)}\nwritten: {path.with_suffix('')}.json and .md")
    return int(bool(failed_stages(results)))


def _all(results: dict[str, Any], path: Path, seconds: float) -> dict[str, Any]:
    """Run the stages, and write the results so far after each."""
    begun, left = time.monotonic(), 1.0
    stages = {
        "tests": tests, "sanitizer": sanitizer, "kernels": lambda s: measured(s, path.parent),
        "models": lambda s: modelled(s, path.parent),
    }  # fmt: skip
    for name, stage in stages.items():
        rest = seconds - (time.monotonic() - begun)
        print(f"== {name}: at most {rest * SHARES[name] / left:.0f} s", flush=True)
        results[name] = stage(rest * SHARES[name] / left)
        kernels.write(path, results)
        left -= SHARES[name]
    return results


if __name__ == "__main__":
    sys.exit(main())
