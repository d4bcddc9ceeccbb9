"""Kernels built for GPUs that are not here, by the command and in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler.codegen.ahead.gpus import gpus
from compiler.codegen.ahead.pool import _worker_process
from compiler.errors import CompileError

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
TRANSFORMER = ROOT / "tests" / "golden" / "inference" / "transformer_encoder__separate"
MODEL = ROOT / "tests" / "golden" / "inference" / "digits_mlp__separate"


def fluid(*arguments, **environment):
    """Run `fluid` as a user does, without Triton's interpreter unless asked for."""
    names = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", "fluid", *map(str, arguments)], capture_output=True, text=True,
        timeout=300, check=False, env=names | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


def test_every_kernel_is_built_for_each_gpu_and_none_spills(tmp_path):
    done = fluid("compile", MODEL, "--target", "cuda:80,cuda:100,hip:gfx942", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert {row["gpu"] for row in rows} == {"cuda:80", "cuda:100", "hip:gfx942"}
    kinds = {(row["kernel"], row["constants"].get("ROWS")) for row in rows}
    assert len(rows) == len({row["file"] for row in rows}) == 3 * len(kinds)
    assert {rows for name, rows in kinds if name.startswith("mul")} == {16, 32, 64, 128}
    assert not any(row["spilled"] for row in rows)
    assert all((tmp_path / row["file"]).stat().st_size == row["bytes"] > 0 for row in rows)
    assert f"{len(rows)} kernels built, 0 spill" in done.stdout
    assert "TARGET = 'triton'" in (tmp_path / "module.py").read_text()


def test_kernels_of_bfloat16_multiply_it_as_it_is(tmp_path):
    gpus = "cuda:90,hip:gfx942"
    done = fluid("compile", MODEL, "--target", gpus, "-o", tmp_path, FLUID_DTYPE="bf16")
    assert done.returncode == 0, done.stderr
    assert " 0 spill" in done.stdout
    assert "factor(" in (tmp_path / "module.py").read_text()
    rows = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert {row["gpu"] for row in rows} == set(gpus.split(","))


def test_numpy_code_needs_no_gpu_and_no_triton(tmp_path):
    done = fluid("compile", MODEL, "--target", "numpy", "-o", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["__model__", "kernels.json", "module.py", "params"]


def test_ctrl_c_ends_all_processes_and_keeps_built_kernels(tmp_path):
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    names = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    names |= {"PYTHONPATH": str(ROOT), "FLUID_CACHE": str(cache), "TMPDIR": str(temporary)}
    command = [
        "compile",
        str(TRANSFORMER),
        "--target",
        "cuda:80,cuda:90",
        "-o",
        str(tmp_path / "o"),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "fluid", *command], env=names, stderr=subprocess.PIPE, text=True
    ) as child:
        while not list(cache.glob("kernels/*/about.json")) and child.poll() is None:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        complaint = child.stderr.read()
    assert child.returncode == 130
    assert complaint == "\nfluid compile: stopped; nothing was left half-written\n"
    assert not list(temporary.iterdir()) and not (tmp_path / "o").exists()
    assert not [path for path in Path("/proc").glob("[0-9]*") if _mentions(path, str(temporary))]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_processes_that_a_worker_started_end_with_it(tmp_path, monkeypatch):
    script = tmp_path / "worker.py"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    monkeypatch.setattr("compiler.codegen.ahead.pool.WORKER", script)
    with _worker_process(tmp_path / "folder") as worker:
        grandchild = int(worker.stdout.readline())
        assert _runs(grandchild)
    assert not _runs(grandchild)


def _runs(number):
    """Whether a process runs: one that ended may wait as a zombie for process 1."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _mentions(process, text):
    try:
        return text.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_unsupported_targets_are_errors(tmp_path):
    done = fluid("compile", MODEL, "--target", "cuda:x", "-o", tmp_path)
    assert done.returncode == 2
    assert "fluid compile: 'cuda:x' is not a known GPU" in done.stderr


def test_tiles_are_not_timed_without_a_gpu(tmp_path):
    done = fluid("compile", MODEL, "--target", "cuda:90", "--tune", "-o", tmp_path / "out",
                 CUDA_VISIBLE_DEVICES="")  # fmt: skip
    assert done.returncode == 2
    assert "--tune times tiles on a GPU, and this machine has none" in done.stderr


@pytest.mark.parametrize("text", ["", "90", "cuda", "cuda:", "hip:90", "metal:1", "cuda:90;80"])
def test_unknown_gpus_are_errors(text):
    with pytest.raises(CompileError, match="is not a known GPU"):
        gpus(text)
