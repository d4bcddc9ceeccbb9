"""Kernels built for GPUs that are not here, by the command and in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.codegen.triton.gpus import gpus
from compiler.errors import CompileError

pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "golden" / "inference" / "digits_mlp__separate"


def fluid(*arguments, **environment):
    """Run `fluid` as a user does, without Triton's interpreter unless asked for."""
    names = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", "fluid", *map(str, arguments)], capture_output=True, text=True,
        timeout=300, check=False, env=names | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


def test_every_kernel_is_built_for_every_gpu_and_none_spills(tmp_path):
    done = fluid(
        "compile", MODEL, "--target", "cuda:80,cuda:90,cuda:100,hip:gfx942", "-o", tmp_path
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert {row["gpu"] for row in rows} == {"cuda:80", "cuda:90", "cuda:100", "hip:gfx942"}
    assert len(rows) == 4 * len({row["kernel"] for row in rows})
    assert not any(row["spilled"] for row in rows)
    assert all((tmp_path / row["file"]).stat().st_size == row["bytes"] > 0 for row in rows)
    assert f"{len(rows)} kernels built, 0 spill" in done.stdout
    assert "TARGET = 'triton'" in (tmp_path / "module.py").read_text()


def test_numpy_code_needs_no_gpu_and_no_triton(tmp_path):
    done = fluid("compile", MODEL, "-o", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["__model__", "kernels.json", "module.py", "params"]


def test_what_cannot_be_compiled_for(tmp_path):
    done = fluid("compile", MODEL, "--target", "cuda:x", "-o", tmp_path)
    assert done.returncode == 2
    assert "fluid compile: 'cuda:x' is no kind of GPU" in done.stderr


@pytest.mark.parametrize("text", ["", "90", "cuda", "cuda:", "hip:90", "metal:1", "cuda:90;80"])
def test_what_is_no_gpu(text):
    with pytest.raises(CompileError, match="is no kind of GPU"):
        gpus(text)
