"""Models of Paddle 2.x as ONNX, by the converter `paddle2onnx`.

Only the compiled half of the package is loaded: the Python half imports paddle, which is needed
to trace dygraph models and for nothing else. Run as a command it converts one model:

    python bench/versus/converted.py MODEL.pdmodel PARAMS.pdiparams OUT.onnx
"""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

OPSET = 14
_EXTENSION = "paddle2onnx_cpp2py_export"


def convert(program: Path, params: Path | None, out: Path) -> None:
    """Write a model as ONNX, in a child process; ImportError or RuntimeError with the reason."""
    if find_spec("paddle2onnx") is None:
        raise ImportError("paddle2onnx is not installed")
    command = [sys.executable, __file__, str(program), str(params or ""), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not out.exists():
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"paddle2onnx does not convert it: {reason[:200]}")


def converter() -> Any:
    """The compiled module of paddle2onnx (before 2.0, which needs paddle even there)."""
    spec = find_spec("paddle2onnx")
    assert spec is not None and spec.submodule_search_locations
    (folder, *_) = spec.submodule_search_locations
    paths = [Path(folder, _EXTENSION + suffix) for suffix in EXTENSION_SUFFIXES]
    path = next(path for path in paths if path.exists())
    module_spec = spec_from_file_location(_EXTENSION, path)
    assert module_spec is not None and module_spec.loader is not None
    module = module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


def main() -> None:
    """Convert the model of the arguments."""
    program, params, out = sys.argv[1:4]
    experimental, optimize, check, upgrade, verbose = True, True, True, True, False
    data = converter().export(
        program, params, OPSET, upgrade, verbose, check, experimental, optimize, {},
        "onnxruntime", "", "", False,
    )  # fmt: skip
    Path(out).write_bytes(data)


if __name__ == "__main__":
    main()
