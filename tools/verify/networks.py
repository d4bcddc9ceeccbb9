"""Whole networks at real sizes: a training step on the native target against NumPy and float64.

    python tools/verify/networks.py
    python tools/verify/networks.py --only resnet50 bert --reference ~/paddle18/bin/python
    python tools/verify/networks.py --quick

Each network of `nets/full.py` takes one step from the same state on the same batch: in NumPy, as
native code with an open batch size and with fixed sizes, in float64 by the reference
implementations of the ops, and with `--reference` in Paddle 1.8.5. A line shows the largest
relative differences between native and NumPy, or native and 1.8.5: of the loss, the output and the
first batch norm's, of a gradient, of a parameter or running statistic after the step, of the
optimizer's state after it. Differences are norms of whole arrays, ‖a - b‖ ÷ ‖b‖. Where b should be
zero, as the gradient of a bias that a norm or a softmax removes again (that of BERT's keys), ‖b‖
counts as at least 0.001 of the largest root mean square among the arrays of its layer.

Float64 is the judge. Gradients of deep networks amplify rounding, everywhere: an array may be as
far from float64 as 4 × NumPy's plus a constant. The constant is 0.0001; 0.01 for networks with relu
or max pooling, where rounding decides on which side of a kink an element is: one such decision
moves a gradient by up to that much. A variable is judged by its update, its difference to the value
before the step, so that a small learning rate hides nothing. `error` and `NumPy's` are the largest
errors of a gradient against float64, `of bound` is the largest error of any array ÷ its bound. The
exit code is 1 if one is above its bound, ours or 1.8.5's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import fluid
from bench.support.lines import machine
from bench.support.table import Row, goal, table
from tests.support.nets import full
from tools.verify.support.step_errors import GRADIENT, Norms, norms, owner
from tools.verify.workers import networks, networks_exact

ROOT = Path(__file__).resolve().parents[2]

NUMPY, OPEN, FIXED, EXACT, REFERENCE = "numpy", "native", "native, fixed sizes", "float64", "1.8.5"
OURS = (OPEN, FIXED)

FACTOR = 4.0
"""An error against float64 may be this many times NumPy's."""
SMOOTH, KINKED = 1e-4, 1e-2
"""What an error may be in addition, without and with operators that have kinks."""

OUTPUTS = ("loss", "output", "features")
WHERE = {"gradients": "largest in", "parameters": "largest of"}
"""Columns that name the variable of the largest difference."""
SHOWN = 5
"""How many variables of a network are listed that differ."""

COLUMNS = {"network": "", "loss": ".1e", "gradients": ".1e", "largest in": ""}
COLUMNS |= {"parameters": ".1e", "largest of": "", "optimizer": ".1e"}
COLUMNS |= {"error": ".1e", "NumPy's": ".1e", "of bound": ".2f"}


# ---- processes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runner:
    """Takes the steps of a network, each in a process of its own, or here if it is tiny.

    `folder` has the files of the network. Those that do not depend on native code are not written
    again.
    """

    name: str
    folder: Path
    quick: bool
    reference: str | None = None

    def sides(self) -> list[str]:
        """Who takes the step."""
        fixed = [] if full.has_sequences(full.network(self.name, self.quick)) else [FIXED]
        return [EXACT, NUMPY, OPEN, *fixed, *([REFERENCE] if self.reference else [])]

    def run(self) -> dict[str, Path]:
        """The files of the results of every side."""
        if not self.state.exists():
            self._do(NUMPY, {"do": "begin"})
        return {side: self._step(side) for side in self.sides()}

    @property
    def state(self) -> Path:
        """The file of the variables before the step."""
        return self.folder / "state.npz"

    def _step(self, side: str) -> Path:
        path = self.folder / f"{side}.npz"
        if side in OURS or not path.exists():
            self._do(side, {"do": "step", "out": str(path), "fixed": side == FIXED})
        return path

    def _do(self, side: str, request: Mapping[str, Any]) -> None:
        begun = time.perf_counter()
        request = {"network": self.name, "quick": self.quick, "folder": str(self.folder), **request}
        if self.quick and side != REFERENCE:
            _answer_here(side, request)
        else:
            self._answer_in_child(side, request)
        what = side if request["do"] == "step" else "initial state"
        passed = time.perf_counter() - begun
        print(f"  {self.name}: {what}, {passed:.1f} s", file=sys.stderr, flush=True)

    def _answer_in_child(self, side: str, request: Mapping[str, Any]) -> None:
        python, worker, *arguments = sys.executable, "networks.py", "fluid"
        if side == REFERENCE:
            python, arguments = str(self.reference), ["paddle.fluid"]
        if side == EXACT:
            worker, arguments = "networks_exact.py", []
        command = [
            python,
            str(ROOT / "tools/verify/workers" / worker),
            *arguments,
            json.dumps(request),
        ]
        path = {"PYTHONPATH": "" if side == REFERENCE else str(ROOT), "GLOG_minloglevel": "2"}
        environment = {**os.environ, **path, "FLUID_TARGET": _target(side)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr[-600:]
            raise RuntimeError(f"{self.name}, {side}: exit code {done.returncode}: {said}")


def _answer_here(side: str, request: Mapping[str, Any]) -> None:
    with _variable("FLUID_TARGET", _target(side)):
        if side == EXACT:
            networks_exact.answer(request)
        else:
            networks.answer(fluid, request)


def _target(side: str) -> str:
    return "native" if side in OURS else "numpy"


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable during the `with` block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


# ---- results ------------------------------------------------------------------------------------


def measure(given: argparse.Namespace) -> Iterator[Row]:
    """Rows of each network."""
    for name in given.only:
        with _folder(given.keep, name) as folder:
            runner = Runner(name, folder, given.quick, given.reference)
            rows = judged(name, given.quick, runner.run(), runner.state)
        for row in rows:
            shown = f"{row['of bound']:.2f} of bound against {row['against']}"
            print(f"{row['network']}: {shown}", file=sys.stderr, flush=True)
        yield from rows


@contextlib.contextmanager
def _folder(keep: Path | None, name: str) -> Iterator[Path]:
    """A folder for the files of a network: kept, or temporary."""
    if keep is None:
        with TemporaryDirectory(prefix="networks-") as folder:
            yield Path(folder)
        return
    (keep / name).mkdir(parents=True, exist_ok=True)
    yield keep / name


def judged(name: str, quick: bool, files: Mapping[str, Path], state: Path) -> list[Row]:
    """Rows of a network, against NumPy and against 1.8.5, from the files of every side."""
    entry = full.network(name, quick)
    ours = [side for side in OURS if side in files]
    others = [side for side in (NUMPY, REFERENCE) if side in files]
    differences = norms(files, state, EXACT, [(side, other) for side in ours for other in others])
    allowed = bounds(differences, KINKED if full.has_kinks(fluid, entry) else SMOOTH)
    return [
        {
            "network": entry.title,
            "against": other,
            "wrong": list(wrong(differences, sides, allowed)),
        }
        | largest_differences(differences, ours, other)
        | largest_errors(differences, sides, allowed)
        for other, sides in zip(others, (ours, [REFERENCE]), strict=False)
    ]


def bounds(found: Norms, constant: float) -> dict[str, float]:
    """The largest error of every variable that counts as rounding."""
    return {
        name: FACTOR * error + (SMOOTH if name in OUTPUTS else constant)
        for name, error in found.relative_errors(NUMPY).items()
    }


def largest_differences(found: Norms, ours: Sequence[str], other: str) -> Row:
    """The largest difference to another side of each kind of variable, and where it is."""
    differences = [
        (difference, kind(name, found.values), name)
        for side in ours
        for name, difference in found.relative_differences(side, other).items()
    ]
    row: dict[str, Any] = {}
    for difference, of, name in sorted(differences):
        row[of], row[WHERE.get(of, "")] = difference, name
    return row


def kind(name: str, names: Iterable[str]) -> str:
    """The column of a variable."""
    if name in OUTPUTS:
        return "loss"
    if name.endswith(GRADIENT):
        return "gradients"
    return "parameters" if owner(name, names) == name else "optimizer"


def largest_errors(found: Norms, sides: Sequence[str], allowed: Mapping[str, float]) -> Row:
    """The largest error of a gradient, NumPy's, and the largest of any variable ÷ its bound."""
    errors = [found.relative_errors(side) for side in sides]
    base = found.relative_errors(NUMPY)
    gradients = [name for name in allowed if name.endswith(GRADIENT)]
    return {
        "error": max(row[name] for row in errors for name in gradients),
        "NumPy's": max(base[name] for name in gradients),
        "of bound": max(row[name] / allowed[name] for row in errors for name in allowed),
    }


def wrong(found: Norms, sides: Sequence[str], allowed: Mapping[str, float]) -> Iterator[str]:
    """What is above its bound, a line each."""
    base = found.relative_errors(NUMPY)
    for side in sides:
        for name, error in found.relative_errors(side).items():
            if not error <= allowed[name]:
                yield f"{side}: {name} is {error:.1e} from float64, NumPy {base[name]:.1e}"


def report(rows: Sequence[Row]) -> str:
    """A table against each side, what is wrong, and whether all agree."""
    lines: list[str] = []
    for other in dict.fromkeys(row["against"] for row in rows):
        title = f"Training steps, native against {other}"
        lines.append(table(title, [row for row in rows if row["against"] == other], COLUMNS))
    for row in rows:
        some = row["wrong"][:SHOWN]
        more = len(row["wrong"]) - len(some)
        lines += [f"  WRONG {row['network']}, {text}" for text in some]
        lines += [f"  WRONG {row['network']}, and {more} more"] if more else []
    failed = len({row["network"] for row in rows if row["wrong"]})
    count = len({row["network"] for row in rows})
    lines.append(goal(f"{failed} of {count} networks differ", not failed, "0"))
    return "\n".join(lines)


def page(rows: Sequence[Row]) -> str:
    """The report as Markdown."""
    about = ", ".join(f"{key} {value}" for key, value in machine().items())
    command = "`python tools/verify/networks.py --reference PYTHON --page FILE`; its help says what"
    command += "\nthe columns mean and how a network is judged."
    title = "# Training steps of whole networks, native, NumPy and Paddle 1.8.5"
    return f"{title}\n\n{command}\n\n{about}\n\n```\n{report(rows)}\n```\n"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(full.FULL), choices=full.FULL,
                        metavar="NAME", help=f"of {', '.join(full.FULL)} (all)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="tiny networks of the same layers")
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"),
                        metavar="PYTHON", help="one that has Paddle 1.8.5")  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="DIR",
                        help="keep the files of the networks there; a second run computes only"
                        " native steps, the others are read (some 35 GB)")  # fmt: skip
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the report as Markdown")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; return 1 if a network differs."""
    parsed = options(arguments)
    rows = list(measure(parsed))
    print(report(rows))
    if parsed.page:
        parsed.page.write_text(page(rows), encoding="utf-8")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
