"""The reference's own operator tests on this package: counts by file, and every failure.

    .venv/bin/python -m tools.verify.reference_tests ~/Paddle/python/paddle/fluid/tests/unittests
    .venv/bin/python -m tools.verify.reference_tests FOLDER --only softmax elementwise --jobs 2

FOLDER is a folder of files `test_*.py` in a checkout of release 1.8; those of its subfolders
`ngraph` and `sequence` are run too. Nothing there is changed. Its `op_test.py` uses the native
library, so tests get a replacement, which builds a program of the op, runs it by `fluid.Executor`
and compares outputs, and gradients with finite differences. Tests of CUDA and MKL-DNN kernels, and
of dygraph layers, are skipped and counted.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from bench.support.lines import append
from tools.verify.reference_tests.report import report
from tools.verify.reference_tests.running import files_of, run_all


def main() -> int:
    """Run, print; return 1 if a test failed or there are no files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with files test_*.py")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts of file names")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a file may take")
    parser.add_argument("--jobs", type=int, default=1, help="files at once")
    parser.add_argument("--reference", metavar="PYTHON", help="run on Paddle 1.8.5 instead")
    parser.add_argument("--beside", metavar="PYTHON", help="try failures on Paddle 1.8.5 too")
    parser.add_argument("--json", type=Path, help="append every test to this file")
    options = parser.parse_args()
    names = files_of(options.folder, options.only)
    if not names:
        print(f"{options.folder} has no such files test_*.py", file=sys.stderr)
        return 1
    files = []
    for outcomes in run_all(
        options.folder, names, options.reference, options.limit, options.jobs, options.beside
    ):
        files.append(outcomes)
        print(f"{len(files)} of {len(names)}: {outcomes[0].file}", file=sys.stderr)
    print(report(files))
    if options.json:
        append(options.json, {"reference_tests": [asdict(outcome) for f in files for outcome in f]})
    return int(any(outcome.outcome == "failed" for outcomes in files for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
