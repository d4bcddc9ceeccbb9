"""A package that `fluid compile` wrote: a folder with a module, and its kernels as machine code.

Its manifest, `kernels.json`, has the size and the SHA-256 of each file; a file that does not match
is not used. Nothing is unpickled. `module.py` is Python code that is executed: only load packages
from sources that you trust as you trust programs.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from compiler.codegen.module import Module
from compiler.errors import CompileError
from runtime.gpu.cuda import gpu_of, stream_of
from runtime.gpu.drivers import Driver
from runtime.gpu.launches import Launcher, Row

MANIFEST, MODULE = "kernels.json", "module.py"
FORMAT = 1
_LARGEST = 64 << 20
"""Maximum size of a manifest in bytes."""

_NAME = re.compile(r"[\w@.-]+(/[\w@.-]+)?", re.ASCII)


class PackageError(CompileError):
    """A package is damaged, or has no code for this GPU; nothing of it was run."""


@dataclass(frozen=True)
class File:
    """The expected size and digest of a file of a package."""

    nbytes: int
    sha256: str

    @staticmethod
    def of(held: bytes) -> File:
        """Return the size and digest of these bytes."""
        return File(len(held), hashlib.sha256(held).hexdigest())


@dataclass(frozen=True)
class Package:
    """The contents of a manifest: the files, the names of the parameters, and a row per kernel."""

    folder: Path
    files: Mapping[str, File]
    params: tuple[str, ...]
    rows: tuple[Row, ...]

    def read(self, name: str) -> bytes:
        """Read a file. Raises PackageError if its content does not match the manifest."""
        known = self.files.get(name)
        path = self.folder / name
        if known is None or not path.is_file():
            raise PackageError(f"{path} is missing from its package")
        if path.stat().st_size != known.nbytes:
            size = path.stat().st_size
            raise PackageError(f"{path} has {size} bytes, not the {known.nbytes} it was made with")
        held = path.read_bytes()
        if File.of(held) != known:
            raise PackageError(f"{path} was changed since its package was made")
        return held

    def module(self) -> Module:
        """The module, not yet executed."""
        return Module.parse(self.read(MODULE).decode("utf-8"))

    @property
    def gpus(self) -> list[str]:
        """The GPU architectures that the package has code for."""
        return list(dict.fromkeys(row.gpu for row in self.rows))


def read_package(folder: Path) -> Package:
    """Read the manifest in a folder. Raises PackageError if it is malformed."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        manifest = json.loads(path.read_bytes())
        if manifest["format"] != FORMAT:
            raise ValueError(f"its format is {manifest['format']!r}, not {FORMAT}")
        files = {str(name): _file(name, each) for name, each in manifest["files"].items()}
        rows = tuple(Row.of(each) for each in manifest["kernels"])
        return Package(folder, files, tuple(map(str, manifest["params"])), rows)
    except FileNotFoundError as error:
        raise PackageError(f"{folder} is not a package: it has no {MANIFEST}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise PackageError(f"{path} is not a valid list of kernels: {error}") from error


def _file(name: str, manifest: Mapping[str, Any]) -> File:
    if not _NAME.fullmatch(name) or name.startswith(".") or "/." in name:
        raise ValueError(f"{name!r} is not a file of a package")
    nbytes = manifest["nbytes"]
    if type(nbytes) is not int or nbytes < 0:
        raise ValueError(f"{name} has {nbytes!r} bytes")
    return File(nbytes, str(manifest["sha256"]))


# ---- a package on a device -----------------------------------------------------------------------


def on_device(package: Package, device: str) -> tuple[Module, dict[str, Any]]:
    """Return a package's module without the text of its kernels, and the kernels as extra globals.

    Raises PackageError if there is no code for the device, PlaceError if its driver rejects it.
    """
    gpu = fitting(package.gpus, gpu_of(device))
    driver = Driver(gpu.partition(":")[0], int(device.partition(":")[2] or 0))
    return prepared(package, gpu, driver, stream_of(device))


def prepared(
    package: Package, gpu: str, driver: Driver, stream: Any
) -> tuple[Module, dict[str, Any]]:
    """The same for a GPU architecture that there is code for, with its driver and stream."""
    module = package.module()
    rows = [row for row in package.rows if row.gpu == gpu]
    launchers = {row.kernel: Launcher(row, driver, package.read(row.file), stream) for row in rows}
    missing = [spec.name for spec in module.kernels if spec.name not in launchers]
    if missing:
        raise PackageError(f"{package.folder} has no code for the kernel {missing[0]} on {gpu}")
    names = {"tl": SimpleNamespace(int32="int32", int64="int64"), **launchers}
    return replace(module, source=without_kernels(module.source)), names


def fitting(there: Sequence[str], gpu: str) -> str:
    """Select the architecture whose code runs on this GPU; PackageError if there is none.

    Code for compute capability 8.0 runs on all 8.x; from 9.0 on it runs only on the same one.

    >>> fitting(["cuda:80", "cuda:90"], "cuda:86")
    'cuda:80'
    """
    if gpu in there:
        return gpu
    maker, _, core = gpu.partition(":")
    older = [each for each in there if maker == "cuda" and _runs(each, core)]
    if not older:
        known = ", ".join(there) or "no GPU"
        hint = f"compile the model with --target {gpu}"
        raise PackageError(f"the package has code for {known}, not for {gpu}", hint=hint)
    return max(older)


def _runs(each: str, core: str) -> bool:
    """Whether code for one compute capability runs on another, later one."""
    maker, _, own = each.partition(":")
    same = maker == "cuda" and len(own) == len(core) == 2 and own[0] == core[0]
    return same and own < core and own < "90"


def without_kernels(source: str) -> str:
    """Blank out everything in a module's source that needs Triton, keeping line numbers."""
    lines = source.split("\n")
    for node in ast.parse(source).body:
        if _needs_triton(node):
            first = min([node.lineno, *(each.lineno for each in _decorators(node))])
            last = cast(int, node.end_lineno)
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(lines)


def _needs_triton(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return any(each.name.partition(".")[0] == "triton" for each in node.names)
    return any("triton.jit" in ast.unparse(each) for each in _decorators(node))


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.FunctionDef) else []
