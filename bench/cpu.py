"""Our CPU code beside ONNX Runtime, torch and Paddle 1.8.5, in the same run.

    python bench/cpu.py --reference ~/paddle18/bin/python --json bench/results/cpu.json
    python bench/cpu.py --only resnet50 lenet --threads 1 --seconds 10
    python bench/cpu.py --only compile growth

Nets are recorded once with this package and written as ONNX with the same weights; outputs must
agree to 1e-4 before times are compared. Ours and the peers run in alternating rounds, each in a
process of its own. With one thread CPU time of the running thread counts, and a ratio is the median
of the rounds' ratios; with two it is wall time, its 10 % quantile. Then: errors against float64,
compile times, starts and memory, and how the cost grows with batch and depth. A row whose peer is
missing gives the reason; the other rows are measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.versus import growth, page, precision, starts
from bench.versus.race import measure
from bench.versus.rows import ROWS
from bench.versus.runners import INSTALL, Missing, Runners
from bench.versus.saved import Case
from compiler.driver import TARGETS

TABLES = ("precision", "compile", "growth")
"""The other tables, by the names that `--only` takes."""

PRECISE = ("resnet50", "vgg16", "mobilenet_v1", "mobilenet_v2", "bert_128")
"""Rows whose outputs are compared with float64."""

ON_CPU = [name for name in ("native", "numpy") if name in TARGETS]


class Bench:
    """One run of the benchmark: its options, the folder of its cases, and what is known so far."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args, self._folder = args, folder
        self._cases: dict[str, Case] = {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row of the first table for every name and number of threads."""
        for threads in self._args.threads:
            with self._runners(threads) as runners:
                for name in [name for name in ROWS if name in self._args.only]:
                    row = _row_or_reason(
                        lambda name=name, runners=runners: self._row(runners, name)
                    )
                    yield {"name": name, "row": ROWS[name].title, "threads": threads} | row

    def _row(self, runners: Runners, name: str) -> dict[str, Any]:
        row, absent, model = ROWS[name], dict[str, str](), ROWS[name].model
        if row.case is not None:
            case = self._case(name)
            model = str(case.folder)
            absent = {"onnxruntime": case.missing} if case.missing else {}
        return measure(runners, row, model, self._args.seconds, absent)

    def _case(self, name: str) -> Case:
        """The case of a row, written when it is first needed."""
        if name not in self._cases:
            make = ROWS[name].case
            assert make is not None
            self._cases[name] = make(self._folder / name)
        return self._cases[name]

    def precision(self) -> Iterator[dict[str, Any]]:
        """A row for each net of ours; no case is written for it alone."""
        if "precision" not in self._args.only:
            return
        with self._runners(1) as runners:
            for name in PRECISE:
                yield precision.measure(runners, ROWS[name].title, self._case(name).folder)
                runners.drop()

    def compile(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Compile times, and starts beside ONNX Runtime's if it is installed; with all threads."""
        if "compile" not in self._args.only:
            return [], []
        folder = self._folder / "starts"
        environment = self._runners(max(self._args.threads)).environment(sys.executable)
        compiled = list(starts.measure(folder, environment))
        return compiled, list(starts.measure_starts(folder, environment))

    def growth(self) -> Iterator[dict[str, Any]]:
        """Rows for every number of threads."""
        for threads in self._args.threads if "growth" in self._args.only else ():
            with self._runners(threads) as runners:
                yield from growth.measure(runners, self._folder)

    def _runners(self, threads: int) -> Runners:
        return Runners(threads, self._args.reference, self._args.target)


def _row_or_reason(row: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A row of measurements, or the reason why there are none."""
    try:
        return row()
    except (Missing, FileNotFoundError) as error:
        return {"why": str(error)}


def run(given: argparse.Namespace) -> dict[str, Any]:
    """All tables that were asked for; rows are printed as they are measured."""
    results: dict[str, Any] = {"machine": page.versions(), "target": given.target or ON_CPU[0]}
    with TemporaryDirectory(prefix="cpu-", dir=given.scratch) as folder:
        bench = Bench(given, Path(folder))
        results["rows"] = list(_printed(bench.rows()))
        results["precision"] = list(bench.precision())
        results["compile"], results["starts"] = bench.compile()
        results["growth"] = list(bench.growth())
    return results


def _printed(rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        ratios = ", ".join(f"÷ {name} {ratio:.2f}" for name, ratio in row.get("ratios", {}).items())
        said = ratios or row.get("why") or "; ".join(row["notes"].values())
        print(f"{row['row']}, {row['threads']} threads: {said}", flush=True)
        yield row


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"The peers of inference: {INSTALL}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    names = [*ROWS, *TABLES]
    parser.add_argument("--only", nargs="+", default=names, choices=names, metavar="NAME",
                        help=f"of {', '.join(names)} (all)")  # fmt: skip
    parser.add_argument("--threads", type=_counts, default=[1, 2], metavar="N[,N]")
    parser.add_argument("--seconds", type=float, default=3.0, help="of rounds a row (%(default)s)")
    parser.add_argument("--target", choices=ON_CPU, help="of ours (the package's own choice)")
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="of models while it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also FILE's .md and .svg")
    return parser.parse_args(arguments)


def _counts(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parsed = options(arguments)
    results = run(parsed)
    print(f"\n{page.report(results)}")
    if parsed.json:
        page.write(results, parsed.json)


if __name__ == "__main__":
    main()
