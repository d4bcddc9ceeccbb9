"""Runs the tests of one file in this process and writes a line of JSON for each.

    python -m fluid run --cpu -m tools.verify.reference_tests.child FOLDER NAME RESULTS

Runs on the reference as well: `python -m tools.verify.reference_tests.child …`.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
import unittest
from pathlib import Path

from tools.verify.reference_tests.reasons import reason_of, skipped_because

HERE = Path(__file__).resolve().parent


class Lines(unittest.TestResult):
    """Writes the outcome of each test as it ends, so that a test that hangs does not affect
    others.
    """

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "a", encoding="utf-8")  # noqa: PTH123, SIM115
        self.spoilt = set()

    def write(self, test, outcome, reason=""):
        """Write a line with the class and method of a test."""
        name = test if isinstance(test, str) else ".".join(test.id().split(".")[-2:])
        line = {"test": name, "outcome": outcome, "reason": reason}
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def write_error(self, test, error):
        """Write a line for a test that failed, or requires an unsupported feature."""
        absent = "" if isinstance(error, unittest.SkipTest) else skipped_because(error)
        is_skipped = bool(absent) or isinstance(error, unittest.SkipTest)
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        why = absent or (str(error) if is_skipped else reason_of(error, trace))
        self.write(test, "skipped" if is_skipped else "failed", why)

    def addSuccess(self, test):
        """The test passed, unless a subtest failed."""
        if test not in self.spoilt:
            self.write(test, "passed")

    def addFailure(self, test, err):
        """The test failed, or requires an unsupported feature."""
        self.write_error(test, err[1])

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        """Record a subtest, if it failed."""
        if err is not None:
            self.spoilt.add(test)
            self.addFailure(subtest, err)

    def addSkip(self, test, reason):
        """The test skipped itself."""
        self.write(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        """The test failed as expected."""
        self.write(test, "passed")

    def addUnexpectedSuccess(self, test):
        """The test passed unexpectedly."""
        self.write(test, "failed", "passes, and is marked as an expected failure")


def main(folder, name, results):
    """Run the tests of a file of `folder`, or of a folder below it: `sequence/test_…`."""
    below, _, name = name.rpartition("/")
    sys.path[:0] = [str(HERE / "modules"), str(Path(folder) / below), folder]
    sys.path.append(str(HERE / "defaults"))
    sys.argv = [name]
    serve_below_paddle()
    lines = Lines(results)
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a file does is its outcome
        lines.write_error("(import)", error)
    else:
        unittest.defaultTestLoader.loadTestsFromModule(module).run(lines)


def serve_below_paddle():
    """Alias `paddle.fluid.tests.unittests.op_test` to `op_test`, for tests that import it that
    way, and serve the other files of the tests' folders below that package.
    """
    import op_test  # noqa: PLC0415  needs the path that was just set
    import testsuite  # noqa: PLC0415

    package = type(sys)("paddle.fluid.tests")
    package.__path__ = []
    folder = type(sys)("paddle.fluid.tests.unittests")
    folder.__path__ = sys.path[:3]
    package.unittests, folder.op_test, folder.testsuite = folder, op_test, testsuite
    for package_module in (package, folder):
        sys.modules.setdefault(package_module.__name__, package_module)
    for module in (op_test, testsuite):
        sys.modules["paddle.fluid.tests.unittests." + module.__name__] = module


if __name__ == "__main__":
    main(*sys.argv[1:])
