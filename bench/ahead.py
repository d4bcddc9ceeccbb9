"""Ahead-of-time build time of every kernel of the models, for GPUs that are not present.

    python bench/ahead.py                        cuda:80, cuda:90, cuda:100 and hip:gfx942
    python bench/ahead.py --target cuda:90

For each model: the kernel launches of a step, the number of distinct kernels, and how many of them
earlier models did not have. For each GPU: seconds to build them all with an empty cache, and again.
`cpu` is the CPU time of all processes, which is more reliable on a busy machine. The peer is Triton
by itself, as it compiles at a first step on a GPU: the kernels of one model sequentially, in the
same run.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.support.table import Row, goal, table
from compiler.codegen.ahead.build import Built, build
from compiler.codegen.ahead.gpus import GpuArchitecture, gpus
from compiler.codegen.ahead.jobs import kernel_jobs
from compiler.codegen.module import Module
from tests.support.modules import TRAINED, launches, modules

COLD, WARM = 60.0, 1.0
"""Seconds for one GPU on two idle cores."""

EVERY = "cuda:80,cuda:90,cuda:100,hip:gfx942"
MODELS = {"model": "", "launches": "d", "kernels": "d", "new": "d"}
TIMES = {"gpu": "", "kernels": "d", "cold s": ".1f", "cold cpu s": ".1f", "warm s": ".2f"}
TIMES |= {"spill": "d", "spill, memory-bound": "d"}
PEERS = {"gpu": "", "kernels": "d", "ours s": ".2f", "triton alone s": ".2f", "ratio": ".2f"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print three tables and the goals; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=EVERY, metavar="GPU[,GPU…]")
    parser.add_argument("--models", nargs="+", choices=TRAINED, default=list(TRAINED))
    options = parser.parse_args(arguments)
    targets, found_modules = gpus(options.target), modules(options.models)
    print(table("Models", list(_counted(found_modules)), MODELS), flush=True)
    rows = [_timed(list(found_modules.values()), gpu) for gpu in targets]
    print(table("\nAll of them", rows, TIMES), flush=True)
    peer = next(iter(found_modules))
    peers = [_compared(found_modules[peer], gpu) for gpu in targets]
    print(table(f"\n{peer}, vs. Triton by itself", peers, PEERS))
    return _judged(rows)


def _counted(found: Mapping[str, Module]) -> Iterator[Row]:
    (gpu,) = gpus("cuda:90")
    seen: set[Any] = set()
    for name, module in found.items():
        jobs = {job for _, job in kernel_jobs(module, gpu)}
        row = {"model": name, "launches": launches(module), "kernels": len(module.kernels)}
        yield row | {"new": len(jobs - seen)}
        seen |= jobs


def _timed(found: Sequence[Module], gpu: GpuArchitecture) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        kernels_built, cold, worked = _clocked(lambda: build(found, [gpu], place, 10**10))
        _, warm, _ = _clocked(lambda: build(found, [gpu], place, 10**10))
    kernels = {kernel.job: kernel for built in kernels_built for kernel in built}.values()
    spilled = [kernel for kernel in kernels if kernel.code.spilled]
    return {
        "gpu": str(gpu), "kernels": len(kernels), "cold s": cold, "cold cpu s": worked,
        "warm s": warm, "spill": len(spilled),
        "spill, memory-bound": sum(not kernel.job.is_product for kernel in spilled),
    }  # fmt: skip


def _compared(module: Module, gpu: GpuArchitecture) -> Row:
    """Time to build the kernels of a model, by all processes and sequentially by one."""
    spent = [_cold(module, gpu, processes) for processes in (None, 1)]
    count = len(module.kernels)
    row = {"gpu": str(gpu), "kernels": count, "ours s": spent[0], "triton alone s": spent[1]}
    return row | {"ratio": spent[0] / spent[1]}


def _cold(module: Module, gpu: GpuArchitecture, processes: int | None) -> float:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        return _clocked(lambda: build([module], [gpu], place, 10**10, processes=processes))[1]


def _clocked(do: Callable[[], list[list[Built]]]) -> tuple[list[list[Built]], float, float]:
    """The result of `do`, its wall time, and the CPU time of all processes, in seconds."""
    worked, start = _worked(), time.perf_counter()
    result = do()
    return result, time.perf_counter() - start, _worked() - worked


def _worked() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def _judged(rows: Sequence[Row]) -> int:
    cold = max(row["cold s"] for row in rows)
    warm = max(row["warm s"] for row in rows)
    spilled = sum(row["spill, memory-bound"] for row in rows)
    met = (cold < COLD, warm < WARM, not spilled)
    print()
    print(goal(f"{cold:.1f} s with nothing on disk", met[0], f"< {COLD:.0f} s on two cores"))
    print(goal(f"{warm:.2f} s again", met[1], f"< {WARM:.0f} s"))
    print(goal(f"{spilled} memory-bound kernels spill", met[2], "none"))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
