"""What compiled programs are found by is the same bytes in every process, and for every clone."""

import os
import subprocess
import sys
from pathlib import Path

from compiler.options import Options
from compiler.passes.pipeline import pipeline

ROOT = Path(__file__).parents[3]

DUMP = """
import sys
from pathlib import Path
import compiler, fluid
from compiler.ir.text.printer import digest
from tests.golden import zoo

with fluid.unique_name.guard():
    loss, outs, feed = zoo.digits_mlp(fluid)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
program = fluid.default_main_program()
folder = Path(sys.argv[1])
module = compiler.compile(program, feed=["img", "label"], fetch=[loss], dump=folder)
files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".jsonl")
print(digest(program), module.digest, *(path.read_bytes() for path in files))
"""


def dumped(folder: Path, seed: str) -> str:
    environ = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", DUMP, str(folder)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return done.stdout


def test_dumps_module_and_key_are_the_same_bytes_under_two_hash_seeds(tmp_path: Path) -> None:
    first, second = (dumped(tmp_path / seed, seed) for seed in ("1", "2"))
    assert first == second
    assert first.count("graph main {") == 1 + len(pipeline(Options()))


def test_a_clone_is_not_compiled_again(fresh_programs) -> None:
    import numpy as np

    import fluid

    main, startup = fresh_programs
    x = fluid.layers.data("x", [4])
    y = fluid.layers.mean(fluid.layers.fc(x, 3))
    exe = fluid.Executor()
    exe.run(startup)
    feed = {"x": np.ones((2, 4), "float32")}
    values = [exe.run(program, feed, [y.name])[0] for program in (main, main.clone())]
    assert exe.counters.compiles == 2, "one for startup, one for main and its clone"
    assert values[0] == values[1]
