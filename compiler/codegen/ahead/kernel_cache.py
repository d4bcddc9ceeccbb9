"""The on-disk kernel cache, shared by all programs of a user on a machine.

An entry is a folder named by a job's digest, with readable files: the kernel's source, a JSON file
with inputs and results of the compilation, the assembly, and the machine code. Entries appear
atomically; one whose checksums do not match is deleted. The least recently used entries are evicted
when the cache exceeds its limit.

Machine code is executed as found, so the folder must be writable by the user only, which `build`
checks with `compiler.support.private_folders`; digests detect damage and stop no attacker.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compiler.codegen.ahead.jobs import KernelJob
from compiler.codegen.ahead.machine_code import GpuCode, expect_parameters
from compiler.errors import CompileError
from compiler.support.dataclass import dataclass
from compiler.support.private_folders import (
    PrivateFolder,
    draft_name,
    private_folder,
    suppress_disk_errors,
    trim,
)

ABOUT, SOURCE = "about.json", "kernel.py"
ENTRY = re.compile(r"[0-9a-f]{64}")
"""The names of entries."""
_LARGEST = 64 << 20
"""Most bytes of a file; larger ones are not from this cache."""


@dataclass(frozen=True)
class KernelCache:
    """Cache entries in a folder, up to `limit` bytes, for one version of Triton."""

    root: Path
    limit: int
    triton: str

    def find(self, job: KernelJob) -> GpuCode | None:
        """Return the cached result of a job; None if it is missing or damaged."""
        with suppress(OSError), private_folder(self.root) as folder:
            return _found(folder, job.digest(self.triton), job)
        return None

    def put(self, job: KernelJob, code: GpuCode) -> None:
        """Store the result of a job. If the disk is full or locked, nothing is stored."""
        files = {f"kernel.{suffix}": content for suffix, content in code.files.items()}
        files |= {SOURCE: job.source.encode(), ABOUT: _about(self.triton, job, code).encode()}
        draft = draft_name()
        with suppress_disk_errors(self.root), private_folder(self.root, create=True) as folder:
            try:
                with folder.subfolder(draft, create=True) as entry:
                    for name, content in files.items():
                        entry.write(name, [content])
                folder.rename(draft, job.digest(self.triton))
            except OSError:
                folder.remove(draft)
                raise

    def trim(self) -> None:
        """Remove the least recently used entries until the others are within the limit."""
        with suppress(OSError), private_folder(self.root) as folder:
            trim(folder, {name: f"{name}/{ABOUT}" for name in folder.names()}, self.limit)


def _found(folder: PrivateFolder, name: str, job: KernelJob) -> GpuCode | None:
    """The entry of a job; None if it is missing, or damaged, and then removed."""
    try:
        with folder.subfolder(name) as entry:
            about = json.loads(entry.read(ABOUT, _LARGEST))
            code = _code(entry, job, about)
            with suppress(OSError):
                entry.touch(ABOUT)  # its modification time is that of the last use
            return code
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CompileError):
        folder.remove(name)
    return None


def _about(triton: str, job: KernelJob, code: GpuCode) -> str:
    """The inputs and results of the compilation as JSON, with the digests of its files."""
    decided = {"triton": triton} | {k: v for k, v in asdict(job).items() if k != "source"}
    fields = {k: v for k, v in asdict(code).items() if k != "files"}
    digests = {suffix: _digest(content) for suffix, content in sorted(code.files.items())}
    about = {"job": decided, "made": fields, "sha256": digests}
    return json.dumps(about | {"sum": _sum(fields, digests)}, indent=1) + "\n"


def _code(entry: PrivateFolder, job: KernelJob, about: Mapping[str, Any]) -> GpuCode:
    """Load an entry; ValueError if its checksums do not match."""
    fields, digests = about["made"], about["sha256"]
    files = {suffix: entry.read(f"kernel.{suffix}", _LARGEST) for suffix in digests}
    actual = {suffix: _digest(content) for suffix, content in files.items()}
    if actual != digests or about["sum"] != _sum(fields, digests):
        raise ValueError(f"{entry.path} was damaged")
    code = GpuCode(
        fields["entry"], files, fields["registers"], fields["spilled"], fields["shared"],
        tuple(fields["parameters"]),
    )  # fmt: skip
    expect_parameters(job, code.parameters, 0)
    return code


def _sum(made: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """A digest of an entry's results and file digests."""
    return _digest(json.dumps([made, digests], sort_keys=True).encode())


def _digest(held: bytes) -> str:
    return hashlib.sha256(held).hexdigest()
