"""compiler/ops/homes.py equals the registry; an op is imported alone, without the others."""

import subprocess
import sys
from itertools import groupby
from pathlib import Path
from textwrap import fill

from compiler.ir.opdef import GradOp, find, registered

FILE = Path(__file__).resolve().parents[2] / "compiler" / "ops" / "homes.py"
HEAD = '''"""The module of each op, so that a lookup imports no other: made from the registry.

`pytest tests/ops/test_homes.py --update` writes it. An op that is missing here is found too, but
all modules of ops are imported for it.
"""

_KINDS = {
'''
END = '''}
"""The ops of each module, with their gradients."""

HOMES = {kind: f"compiler.ops.{home}" for home, kinds in _KINDS.items() for kind in kinds.split()}
'''


def home(kind: str) -> str:
    """The module that defines an op; of a gradient, that of its forward op."""
    result = find(kind)
    return (result.forward if issubclass(result, GradOp) else result).__module__


def listing() -> str:
    """The text of the file."""
    own = [kind for kind in registered() if home(kind).startswith("compiler.ops.")]
    entries = []
    for module, kinds in groupby(sorted(own, key=home), home):
        text = " ".join(kinds)
        lines = fill(text, 88).splitlines() if len(text) > 90 else [text]
        texts = [f'"{line} "' for line in lines[:-1]] + [f'"{lines[-1]}"']
        name = module.removeprefix("compiler.ops.")
        one = f'    "{name}": {texts[0]},\n'
        short = len(texts) == 1 and len(one) <= 101
        many = f'    "{name}": (\n' + "".join(f"        {each}\n" for each in texts) + "    ),\n"
        entries.append(one if short else many)
    return HEAD + "".join(entries) + END


def test_the_index_of_ops_is_up_to_date(update: bool) -> None:
    if update:
        FILE.write_text(listing(), encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == listing(), "run pytest with --update"


SCRIPT = """
import sys
from compiler.ir.opdef import OpDef, find, reads, registered, writes

class Mine(OpDef, op="relu"):
    X, Out = reads(), writes()

assert find("tanh").__module__ == "compiler.ops.math.activation"  # which defines relu, too
assert find("conv2d_grad") and find("conv2d")
families = {name.split(".")[2] for name in sys.modules if name.count(".") == 3
            and name.startswith("compiler.ops.")}
print(*sorted(families))
assert find("relu") is Mine
assert len(list(registered())) > 700 and find("relu") is Mine
"""


def test_a_lookup_imports_the_module_of_its_op_alone_and_keeps_what_a_user_defined() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    families = {*done.stdout.split()}
    assert families >= {"image", "math"} and not families & {"detection", "loss", "matching"}
