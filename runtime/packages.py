"""Packages that `fluid compile` wrote: a folder with modules, and their kernels as machine code.

The manifest, `kernels.json`, has the size and the SHA-256 of each file; a file that does not match
is not used. Nothing is unpickled. `module.py` is Python code that is executed: only load packages
from sources that you trust as you trust programs. `runtime.gpu.package` and
`runtime.native.package` make a package's code callable.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler.codegen.module import Module, without_ir
from compiler.errors import CompileError
from compiler.support.dataclass import dataclass
from runtime.gpu.launches import ManifestRow

MANIFEST, MODULE, OBJECTS = "kernels.json", "module.py", "kernels.a"
"""Files of a package; one for CPUs has a module and an archive of objects for each level."""
FORMAT = 2
_LARGEST = 64 << 20
"""Maximum size of a manifest in bytes."""

_NAME = re.compile(r"[\w@.-]+(/[\w@.-]+)?", re.ASCII)
_LEVEL = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)


class PackageError(CompileError):
    """A package is damaged, or has no code for this GPU or CPU; nothing of it was run."""


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
    """The contents of a manifest: the files, the names of the parameters, and a row per GPU kernel.

    `cpus` are the levels of a package for CPUs, such as `avx2`, in the order they were requested.
    """

    folder: Path
    files: Mapping[str, File]
    params: tuple[str, ...]
    rows: tuple[ManifestRow, ...]
    cpus: tuple[str, ...] = ()

    def read(self, name: str) -> bytes:
        """Read a file. Raises PackageError if its content does not match the manifest."""
        file = self.files.get(name)
        path = self.folder / name
        if file is None or not path.is_file():
            raise PackageError(f"{path} is missing from its package")
        if path.stat().st_size != file.nbytes:
            size = path.stat().st_size
            raise PackageError(f"{path} has {size} bytes, not the {file.nbytes} it was made with")
        content = path.read_bytes()
        if File.of(content) != file:
            raise PackageError(f"{path} was changed since its package was made")
        return content

    def module(self, level: str = "") -> Module:
        """The module, not yet executed; of a package for CPUs that of a level, without IR."""
        if not self.cpus:
            return Module.parse(self.read(MODULE).decode("utf-8"))
        source = self.read(f"{level or self.cpus[0]}/{MODULE}").decode("utf-8")
        return Module.parse(without_ir(source))

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
        files = {str(name): _file(name, entry) for name, entry in manifest["files"].items()}
        rows = tuple(ManifestRow.of(row) for row in manifest["kernels"])
        cpus = tuple(_level(level, files) for level in manifest.get("cpus", ()))
        return Package(folder, files, tuple(map(str, manifest["params"])), rows, cpus)
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


def _level(name: object, files: Mapping[str, File]) -> str:
    if not isinstance(name, str) or not _LEVEL.fullmatch(name):
        raise ValueError(f"{name!r} is not a level of CPUs")
    if not {f"{name}/{MODULE}", f"{name}/{OBJECTS}"} <= files.keys():
        raise ValueError(f"it lists no files for CPUs with {name}")
    return name
