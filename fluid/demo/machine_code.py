"""The saved model of the demo as machine code: its kernels, and their times."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import runtime
from compiler.debugging.explanation import Study, study
from compiler.ir.types import Array
from compiler.options import Options
from compiler.report.native_code import NativeReport
from compiler.support.dataclass import dataclass
from compiler.support.text_files import write_text
from fluid.cli.model import SavedModel
from fluid.cli.profiling.native import native_report
from fluid.running.targets import default_target
from runtime.device import CPUPlace

RUNS = 5


@dataclass(frozen=True)
class MachineCode:
    """The model compiled for this CPU, and its run on `size` digits.

    `seconds` is the time to compile, `milliseconds` that of a run; `predictions` are its output,
    float32 [size, 10].
    """

    seen: Study
    report: NativeReport
    seconds: float
    milliseconds: float
    predictions: Array

    @property
    def kernels(self) -> int:
        """The number of different kernels."""
        return len(self.report.kernels)

    def save(self, path: Path) -> None:
        """Write the page with the LLVM IR and the assembly of each kernel, and the roofline."""
        write_text(path, self.seen.html(native=self.report))


def machine_code(model: SavedModel, digits: Array) -> MachineCode | None:
    """Compile a model for this CPU and run it; None where programs run in NumPy.

    `digits` are the images to predict, float32 [N, 1, 16, 16].
    """
    if default_target() != "native":
        return None
    start = time.perf_counter()
    seen = study(
        "Saved model as machine code", model.program, ["image"], model.fetch_names,
        {"N": len(digits)}, target="native", params=dict(model.params), options=Options.from_env(),
    )  # fmt: skip
    executable = runtime.load(seen.module, CPUPlace(), seen.params)
    predictions = np.array(executable({"image": digits})[0])
    seconds = time.perf_counter() - start
    spent = fastest(lambda: executable({"image": digits}))
    return MachineCode(seen, native_report(seen, True, True), seconds, spent, predictions)


def fastest(run: Callable[[], object]) -> float:
    """The least milliseconds of a few runs."""
    spent: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        spent.append((time.perf_counter() - start) * 1e3)
    return min(spent)
