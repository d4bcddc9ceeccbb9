"""The on-disk kernel cache, shared by all programs of a user on a machine.

An entry is a folder named by a job's digest, with readable files: the kernel's source, a JSON file
with inputs and results of the compilation, the assembly, and the machine code. Entries appear
atomically; one whose checksums do not match is deleted. The least recently used entries are evicted
when the cache exceeds its limit.

Machine code is executed as found, so the folder must be writable by the user only, which `build`
checks with `compiler.private_folders`; digests detect damage, and would not stop an attacker.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compiler.codegen.ahead.jobs import Job
from compiler.codegen.ahead.machine_code import Code, expect_parameters
from compiler.errors import CompileError
from compiler.private_folders import trim

ABOUT, SOURCE = "about.json", "kernel.py"
_LARGEST = 64 << 20
"""Most bytes of a file; larger ones are not from this cache."""


@dataclass(frozen=True)
class KernelCache:
    """Cache entries in a folder, up to `limit` bytes, for one version of Triton."""

    root: Path
    limit: int
    triton: str

    def find(self, job: Job) -> Code | None:
        """Return the cached result of a job; None if it is missing or damaged."""
        place = self._place(job)
        if not place.exists():
            return None
        try:
            about = json.loads(_read(place / ABOUT))
            code = _code(place, job, about)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, CompileError):
            shutil.rmtree(place, ignore_errors=True)
            return None
        with suppress(OSError):
            (place / ABOUT).touch()  # mtime is the time of last use
        return code

    def put(self, job: Job, code: Code) -> None:
        """Store the result of a job. If the disk is full or locked, nothing is stored."""
        with suppress(OSError):
            self.root.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".drafts-", dir=self.root) as drafts:
                draft = Path(drafts, "draft")
                draft.mkdir()
                for suffix, held in code.files.items():
                    (draft / f"kernel.{suffix}").write_bytes(held)
                (draft / SOURCE).write_text(job.source, encoding="utf-8")
                (draft / ABOUT).write_text(_about(self.triton, job, code), encoding="utf-8")
                draft.rename(self._place(job))

    def trim(self) -> None:
        """Remove the least recently used entries until the others are within the limit."""
        uses = [each for each in self.root.glob("*/" + ABOUT) if not each.is_symlink()]
        trim({used.parent: used for used in uses}, self.limit)

    def _place(self, job: Job) -> Path:
        return self.root / job.digest(self.triton)


def _about(triton: str, job: Job, code: Code) -> str:
    """The inputs and results of the compilation as JSON, with the digests of its files."""
    decided = {"triton": triton} | {k: v for k, v in asdict(job).items() if k != "source"}
    made = {k: v for k, v in asdict(code).items() if k != "files"}
    digests = {suffix: _digest(held) for suffix, held in sorted(code.files.items())}
    about = {"job": decided, "made": made, "sha256": digests}
    return json.dumps(about | {"sum": _sum(made, digests)}, indent=1) + "\n"


def _code(place: Path, job: Job, about: Mapping[str, Any]) -> Code:
    """Load an entry; ValueError if its checksums do not match."""
    made, digests = about["made"], about["sha256"]
    files = {suffix: _read(place / f"kernel.{suffix}") for suffix in digests}
    found = {suffix: _digest(held) for suffix, held in files.items()}
    if found != digests or about["sum"] != _sum(made, digests):
        raise ValueError(f"{place} was damaged")
    code = Code(
        made["entry"], files, made["registers"], made["spilled"], made["shared"],
        tuple(made["parameters"]),
    )  # fmt: skip
    expect_parameters(job, code.parameters, 0)
    return code


def _sum(made: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """A digest of an entry's results and file digests."""
    return _digest(json.dumps([made, digests], sort_keys=True).encode())


def _digest(held: bytes) -> str:
    return hashlib.sha256(held).hexdigest()


def _read(file: Path) -> bytes:
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"{file} is larger than a kernel")
    return file.read_bytes()
