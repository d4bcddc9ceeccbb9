"""What `fluid doctor` looks at: packages, the CPU, GPUs, caches, distributed jobs, old scripts.

A check imports nothing that takes long (torch is not imported), starts no process and writes
nothing that remains.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from compiler.codegen.native.host import supported
from compiler.options import Cache
from compiler.report.memory import size_text
from compiler.support.extras import MODULES, install, missing
from compiler.support.private_folders import NotPrivate, private_folder
from compiler.support.processors import available_processors
from compiler.support.settings.declarations import PREFIX, setting_names, unknown_variables
from compiler.support.settings.fluid import FLUID_CPU
from compiler.support.settings.paddle import PADDLE_DATASET_HOME
from fluid.compat.as_paddle import expect_no_other_paddle
from fluid.compat.old_python.arrays import has_expected_layout, numpy_version
from fluid.doctor.caches import KINDS, cache_folder, nbytes, unusable
from fluid.doctor.diagnosis import Diagnosis
from fluid.running.targets import default_target
from runtime.gpu.drivers import CALLS

__all__ = ["CHECKS"]

OLDEST = {"numpy": (2, 0), "networkx": (3, 4), "ml_dtypes": (0, 5), "llvmlite": (0, 50)}
"""The least version of each package that is needed, as in pyproject.toml."""
OPTIONAL = {
    "llvmlite": "machine code is compiled with it: without it NumPy runs",
    "ml_dtypes": "bfloat16 needs it",
}
"""What is missing without a package of the extra `native`."""
EXTRAS = (
    ("gpu", "CUDAPlace"),
    ("dist", "several processes"),
    ("onnx", "fluid export"),
    ("slim", "configuration files of contrib.slim"),
)
"""Each extra, and what it is for."""
PACKAGES = {"grpc": "grpcio", "yaml": "PyYAML"}
"""Modules whose package has another name."""
CONNECTS = 2.0
"""Seconds within which a process reaches a port of its own machine."""
LEAST_SHARED = 64 << 20
"""Bytes of shared memory with which torch's processes can exchange batches."""


def packages() -> Iterator[Diagnosis]:
    """Versions, and the folder that each package comes from."""
    seen = f"{platform.python_version()} at {sys.executable}"
    ok = sys.version_info >= (3, 11)
    yield Diagnosis("Python", seen, "ok" if ok else "problem", "Python 3.11 or newer is needed")
    for name in ("compiler", "runtime", "fleet"):
        yield from _own_package(name)
    for name, least in OLDEST.items():
        yield _library(name, least)
    for extra, use in EXTRAS:
        absent = missing(extra)
        if absent:
            seen = f"{', '.join(absent)} not installed: needed for {use} only"
            yield Diagnosis(f"extra {extra}", seen, "note", install(extra))
        else:
            versions = [f"{name} {version(PACKAGES.get(name, name))}" for name in MODULES[extra]]
            yield Diagnosis(f"extra {extra}", ", ".join(versions))
    try:
        expect_no_other_paddle()
        yield Diagnosis("other paddle", "none: `fluid run` provides it")
    except ImportError as error:
        yield Diagnosis("other paddle", str(error).partition(":")[0], "note", "fluid run --force")


def _own_package(name: str) -> Iterator[Diagnosis]:
    """A problem if a package of another project has the name of one of ours."""
    root, spec = Path(__file__).parents[2], find_spec(name)
    where = Path(spec.origin).parents[1] if spec and spec.origin else None
    if where != root:
        seen = f"imported from {where}, not from {root}"
        yield Diagnosis(name, seen, "problem", "install into an environment of its own")


def _library(name: str, least: tuple[int, ...]) -> Diagnosis:
    try:
        text = version(name)
    except PackageNotFoundError:
        needed = OPTIONAL.get(name, "")
        state = "note" if needed else "problem"
        seen = f"not installed: {needed}" if needed else "not installed"
        return Diagnosis(name, seen, state, install("native") if needed else f"pip install {name}")
    spec = find_spec(name)
    where = Path(spec.origin).parents[1] if spec and spec.origin else "?"
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[: len(least)])
    wanted = ".".join(map(str, least))
    if numbers < least:
        advice = f"pip install --upgrade '{name}>={wanted}'"
        return Diagnosis(name, f"{text} in {where}, {wanted} is needed", "problem", advice)
    return Diagnosis(name, f"{text} in {where}")


def processor() -> Iterator[Diagnosis]:
    """The CPU, its vector widths, and what programs are compiled to."""
    machines, target = supported(), default_target()
    levels = ", ".join(f"{m.name} ({8 * m.vector_bytes} bits)" for m in machines.values())
    cores = available_processors()
    seen = f"{platform.machine()}, {cores} core{'s' * (cores > 1)}: {levels or 'no level known'}"
    yield Diagnosis("CPU", seen)
    chosen = FLUID_CPU.read()
    if chosen and chosen not in machines:
        advice = f"unset {FLUID_CPU.name}, or one of: {', '.join(machines)}"
        yield Diagnosis(FLUID_CPU.name, f"{chosen!r}: this CPU cannot run it", "problem", advice)
    if target == "native":
        yield Diagnosis("programs run as", "machine code")
    else:
        absent = machines and find_spec("llvmlite") is None
        needs = "llvmlite" if absent else "Linux and an x86-64 CPU with AVX2"
        advice = install("native") if absent else "docs/native.md"
        seen = f"NumPy calls: machine code needs {needs}"
        yield Diagnosis("programs run as", seen, "note", advice)


def gpus() -> Iterator[Diagnosis]:
    """GPUs with their driver, by files of the system; torch decides at the first run."""
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    names = [_model(card.read_text(encoding="utf-8", errors="replace")) for card in cards]
    if not names:
        yield Diagnosis("GPU", "no NVIDIA driver: kernels run in Triton's interpreter", "note",
                      "TRITON_INTERPRET=1 runs them, slowly; docs/gpu.md")  # fmt: skip
        return
    yield Diagnosis("GPU", ", ".join(names))
    library = CALLS["cuda"].library
    try:
        ctypes.CDLL(library)
    except OSError as error:
        yield Diagnosis(library, str(error), "problem", "install the library of the driver")
    if missing("gpu"):
        yield Diagnosis("kernels", "torch and triton are missing", "problem", install("gpu"))


def _model(information: str) -> str:
    model = re.search(r"^Model:\s*(.+)$", information, re.MULTILINE)
    return model[1].strip() if model else "unknown model"


def caches() -> Iterator[Diagnosis]:
    """The folder of each cache, its size and limit, and whether others can write to it."""
    root = cache_folder()
    limit = Cache.from_env().limit
    own = "set FLUID_CACHE to a folder of your own"
    if limit == 0:
        yield Diagnosis(
            "cache", "off: every process compiles anew", "note", "unset FLUID_CACHE_SIZE"
        )
        return
    if reason := unusable(root):
        yield Diagnosis("cache", f"{reason}: nothing is cached", "problem", own)
        return
    sizes = {kind: nbytes(root / kind) for kind in KINDS if (root / kind).is_dir()}
    each = ", ".join(f"{kind} {size_text(size)}" for kind, size in sizes.items()) or "empty"
    yield Diagnosis("cache", f"{root}: {each}; limit {size_text(limit)} each")
    for kind in sizes:
        try:
            with private_folder(root / kind):
                pass
        except NotPrivate as error:
            advice = f"{own}, or: chmod go-w {root}"
            yield Diagnosis(f"cache of {kind}", f"not used: {error}", "problem", advice)
        except OSError as error:
            yield Diagnosis(f"cache of {kind}", f"cannot be read: {error.strerror}", "problem")
    parent = next(folder for folder in (root, *root.parents) if folder.exists())
    free = shutil.disk_usage(parent).free
    if free < limit:
        seen = f"{size_text(free)} free, less than the limit"
        yield Diagnosis("disk of the cache", seen, "note", "fluid cache clear, or FLUID_CACHE_SIZE")


def settings() -> Iterator[Diagnosis]:
    """Environment variables with a name like ours that nothing reads: misspelt, or of a release."""
    unknown = unknown_variables()
    for name in unknown:
        known = [each.removeprefix(PREFIX) for each in setting_names() if each.startswith(PREFIX)]
        close = get_close_matches(name.removeprefix(PREFIX), known, n=1)
        advice = f"did you mean {PREFIX}{close[0]}?" if close else "docs/settings.md lists them all"
        yield Diagnosis(name, "is set, and no such setting exists", "problem", advice)
    if not unknown:
        yield Diagnosis("FLUID_* variables", "all that are set are settings")


def jobs() -> Iterator[Diagnosis]:
    """What jobs of several processes need: a port, a name that resolves, shared memory."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), timeout=CONNECTS).close()
            yield Diagnosis("ports", f"127.0.0.1 can be listened on ({port}) and reached")
    except OSError as error:
        seen = f"127.0.0.1: {error.strerror or error}"
        yield Diagnosis("ports", seen, "problem", "check the sandbox, and whether `lo` is up")
    name = socket.gethostname()
    try:
        yield Diagnosis("host name", f"{name} is {socket.gethostbyname(name)}")
    except OSError:
        advice = f"add {name} to /etc/hosts, or pass --cluster_node_ips"
        yield Diagnosis("host name", f"{name} does not resolve", "note", advice)
    shared = Path("/dev/shm")
    if shared.is_dir():
        size = shutil.disk_usage(shared).free
        enough = size >= LEAST_SHARED
        yield Diagnosis("shared memory", f"{size_text(size)} free in /dev/shm",
                      "ok" if enough else "note", "docker run --shm-size=1g")  # fmt: skip
    if not hasattr(os, "memfd_create"):
        seen = f"several CPU devices of one process need Linux, not {platform.system()}"
        yield Diagnosis("devices", seen, "note", "fluid launch starts processes everywhere")


def scripts() -> Iterator[Diagnosis]:
    """What `fluid run` gives back to scripts of 2020 here."""
    numpy = ".".join(map(str, numpy_version()))
    if numpy_version() < (2, 4) or has_expected_layout(np.ndarray):
        yield Diagnosis("arrays of one element", f"convert to numbers with NumPy {numpy}")
    else:
        seen = f"do not convert to numbers: NumPy {numpy} in this build of Python"
        yield Diagnosis("arrays of one element", seen, "note", "pip install 'numpy<2.4'")
    yield Diagnosis("removed names", "np.float, np.bool, collections.Mapping, … are given back")
    home = Path(PADDLE_DATASET_HOME.read() or "~/.cache/paddle/dataset").expanduser()
    sets = sorted(folder.name for folder in home.glob("*") if folder.is_dir())
    advice = "nothing is downloaded: docs/old_scripts.md lists the files"
    if sets:
        yield Diagnosis("data sets", f"{home}: {', '.join(sets)}")
    else:
        yield Diagnosis("data sets", f"none in {home}", "note", advice)


CHECKS: dict[str, Callable[[], Iterator[Diagnosis]]] = {
    "packages": packages, "processor": processor, "GPU": gpus, "settings": settings,
    "caches": caches,
    "distributed jobs": jobs, "old scripts": scripts,
}  # fmt: skip
"""The checks in the order of the report."""
