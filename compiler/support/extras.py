"""The extras of the package: optional dependencies, and the commands that install them."""

from __future__ import annotations

from importlib.util import find_spec

MODULES = {
    "native": ("llvmlite", "ml_dtypes"),
    "gpu": ("torch", "triton"),
    "dist": ("torch", "grpc"),
    "onnx": ("onnx", "onnxruntime"),
    "slim": ("yaml",),
}
"""The modules that each extra in pyproject.toml installs."""


def missing(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed."""
    return [name for name in MODULES[extra] if find_spec(name) is None]


def install(extra: str) -> str:
    """Return the command that installs an extra.

    >>> install("gpu")
    "pip install 'fluid-compiler[gpu]'"
    """
    return f"pip install 'fluid-compiler[{extra}]'"
