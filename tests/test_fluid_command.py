"""The installed command: Ctrl-C while it starts."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STARTING = """\
import os, signal, sys
import fluid_command
class Interrupting:
    def find_spec(self, name, *_):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["fluid", "--version"]
sys.exit(fluid_command.main())
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_while_packages_are_imported(ignored):
    """As a process of the foreground, and as one that a shell has started with &."""
    handler = signal.SIG_IGN if ignored else signal.default_int_handler
    done = subprocess.run(
        [sys.executable, "-c", STARTING], env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == ((0, "") if ignored else (130, ""))
