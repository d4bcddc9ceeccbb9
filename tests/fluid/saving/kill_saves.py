"""Kills a save at every step it takes: `kill_saves.py FOLDER [KIND]...`; prints outcomes as JSON.

A step is a call that opens, renames, removes or makes a file or a folder, or syncs one. Each kill
is a forked process that sends itself SIGKILL just before its n-th step, for every n until a save
gets through.
"""

import json
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from threading import Lock

from tools.verify.attacks.saves import outcome
from tools.verify.support.save_kinds import KINDS, leftovers, save, versioned

STEPS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")
COUNT, SIZE = 3, 64


def kill_at(step: int, folder: Path) -> None:
    """Send this process SIGKILL just before the step of this number that concerns the folder."""
    taken, lock = 0, Lock()

    def count(*_: object) -> None:
        nonlocal taken
        with lock:
            taken += 1
            if taken > step:
                os.kill(os.getpid(), signal.SIGKILL)

    fsync = os.fsync
    os.fsync = lambda handle: (count(), fsync(handle))[1]
    sys.addaudithook(
        lambda event, given: count() if event in STEPS and str(folder) in str(given) else None
    )


def killed(kind, model, folder: Path, step: int) -> bool:
    """Whether a save that is killed before this step was not done yet."""
    child = os.fork()
    if not child:
        kill_at(step, folder)
        save(kind, model, folder)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{kind.name} failed at step {step}")
    return os.WIFSIGNALED(status)


def tried(kind, space: Path) -> dict[str, object]:
    """Kill a save of a kind at every step: what loads return, and what the next saves leave."""
    old, new, third = (versioned(version, COUNT, SIZE) for version in (1, 2, 3))
    came: Counter[str] = Counter()
    left: list[str] = []
    save(kind, old, space / "original")
    step, running = 0, True
    while running:
        folder = space / str(step)
        shutil.copytree(space / "original", folder)
        running = killed(kind, new, folder, step)
        came[outcome(kind, new, folder)] += 1
        save(kind, third, folder)
        came["next save torn"] += kind.load(third, folder) != {3.0}
        left += leftovers(folder)
        step += 1
    return {"came": came, "left": left}


def main() -> None:
    """Try the kinds named on the command line, in a folder; print outcomes by kind."""
    kinds = [kind for kind in KINDS if kind.name in sys.argv[2:] or not sys.argv[2:]]
    print(json.dumps({kind.name: tried(kind, Path(sys.argv[1], kind.name)) for kind in kinds}))


if __name__ == "__main__":
    main()
