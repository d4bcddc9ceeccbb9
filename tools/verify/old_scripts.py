"""Third-party scripts for Paddle 1.x, run by `fluid run` unchanged, vs. 1.8.5 itself.

jieba 0.42.1 comes with scripts that use its paddle mode, which builds a network, loads parameters
and segments sentences. LAC 2.1.2 has a command line over predictors of three models, and trains:
its scripts are those that pip writes for a command, and one that trains. `--fetch` downloads
missing packages; nothing is installed or changed. `--reference PYTHON` is a Python with Paddle
1.8.5, which runs the same scripts: the outputs are compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.real.packages import cache_folder, provide
from bench.real.text import SENTENCES
from bench.support.lines import append
from bench.support.table import Row, goal, table

ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
COLUMNS = {"script": "", "lines": ",d", "same": "", "ours s": ".1f", "1.8.5 s": ".1f"}

COMMAND = """\
import sys
from LAC.cmdline import main
sys.exit(main())
"""
"""The script that pip writes for a command of a package."""

TRAINING = """\
from LAC import LAC
lac = LAC(mode="lac")
print(lac.run("春天的花开秋天的风"))
lac.train("trained", "words.tsv", "words.tsv", iter_num=6, thread_num=1)
print(lac.run("春天的花开秋天的风"))
"""
TAGGED = "百度/ORG 是/v 一家/m 高科技/n 公司/n\n春天/TIME 的/u 花/n 开/v 了/u\n我/r 爱/v 北京/LOC\n"


@dataclass(frozen=True)
class Script:
    """A script of a package, or the text of one that calls it; its arguments and what it reads."""

    package: str
    file: str
    text: str = ""
    arguments: Sequence[str] = ()
    typed: str = ""


TYPED = "".join(f"{sentence}\n" for sentence in SENTENCES)
SCRIPTS = {
    "jieba cuts": Script("jieba", "test/test_paddle.py"),
    "jieba tags": Script("jieba", "test/test_paddle_postag.py"),
    "lac tags": Script("lac", "lac", COMMAND, typed=TYPED),
    "lac cuts": Script("lac", "lac", COMMAND, ["--segonly"], TYPED),
    "lac ranks": Script("lac", "lac", COMMAND, ["--rank"], TYPED),
    "lac trains": Script("lac", "train.py", TRAINING),
}


@dataclass(frozen=True)
class Finished:
    """The output of a script, its seconds, and why it failed if it did."""

    lines: Sequence[str]
    seconds: float
    error: str = ""


def run(script: Script, cache: Path, python: str | None) -> Finished:
    """Run a script by `fluid run`, or by the Python of a reference."""
    with TemporaryDirectory(prefix="old-") as space:
        folder, path = prepared(script, cache, Path(space))
        paths = [str(Path(space)), *([] if python else [str(ROOT)])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment |= {
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "GLOG_minloglevel": "2",
        }
        command = [python] if python else [sys.executable, "-m", "fluid", "run"]
        start = time.perf_counter()
        done = subprocess.run(
            [*command, str(path), *script.arguments], cwd=folder, env=environment,
            input=script.typed, capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
        spent = time.perf_counter() - start
    return Finished(done.stdout.splitlines(), spent, done.stderr[-400:] if done.returncode else "")


def prepared(script: Script, cache: Path, space: Path) -> tuple[Path, Path]:
    """The folder to run in and the script; a package is found in `space` by its own name."""
    package = cache / script.package
    if not script.text:
        path = package / script.file
        return path.parent, path
    (space / script.package.upper()).symlink_to(package, target_is_directory=True)
    (space / "words.tsv").write_text(TAGGED, encoding="utf-8")
    (space / script.file).write_text(script.text, encoding="utf-8")
    return space, space / script.file


def measure(names: Sequence[str], cache: Path, reference: str | None) -> Iterator[Row]:
    """A row for each script."""
    for name in names:
        ours = run(SCRIPTS[name], cache, None)
        row = {"script": name, "lines": len(ours.lines), "ours s": ours.seconds}
        row |= {"error": ours.error, "says": ours.lines[-1] if ours.lines else ""}
        if reference:
            theirs = run(SCRIPTS[name], cache, reference)
            same = "yes" if without_places(theirs) == without_places(ours) else "no"
            row |= {
                "same": "–" if theirs.error else same,
                "1.8.5 s": theirs.seconds,
                "its error": theirs.error,
            }
        yield {"same": "–", **row}


def without_places(finished: Finished) -> list[str]:
    """The lines except those that name the folder a model was loaded from."""
    return [line for line in finished.lines if not line.startswith("Load ")]


def report(rows: Sequence[Row]) -> str:
    """The table, the last line of each script, and whether all ran."""
    lines = [table("Scripts of others", rows, COLUMNS)]
    lines += [f"  {row['script']}: … {row['says']}" for row in rows]
    lines += [f"  {row['script']} failed: {row['error']}" for row in rows if row["error"]]
    failed = sum(bool(row["error"]) or row["same"] == "no" for row in rows)
    lines.append(goal(f"{failed} of {len(rows)} scripts fail or say other things", not failed, "0"))
    return "\n".join(lines)


def main() -> int:
    """Fetch if requested, run and print; return 1 if a script fails or packages are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", nargs="+", default=list(SCRIPTS), choices=SCRIPTS)
    parser.add_argument("--fetch", action="store_true", help="download missing packages")
    parser.add_argument("--cache", type=Path, default=cache_folder(), metavar="DIR")
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    options = parser.parse_args()
    packages = [SCRIPTS[name].package for name in options.scripts]
    if not provide(packages, options.cache, options.fetch):
        return 1
    rows = list(measure(options.scripts, options.cache, options.reference))
    print(report(rows))
    if options.json:
        append(options.json, {"old_scripts": rows})
    return int(any(row["error"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
