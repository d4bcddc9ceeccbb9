"""One process of a job: prints its role and what collectives gave it, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from fleet.roles.general import GeneralRoleMaker
from fleet.roles.mpi import MPISymetricRoleMaker

MAKERS: dict[str, Any] = {"general": GeneralRoleMaker, "mpi": MPISymetricRoleMaker}


def meet_servers(role: Any) -> bool:
    """Whether each server had come when a barrier of all of them ended."""
    marks = Path(os.environ["MARKS"])
    if role.is_server():
        time.sleep(role.server_index())
        (marks / str(role.server_index())).touch()
    role._barrier_server()
    return role.is_worker() or len(list(marks.iterdir())) == role.server_num()


def main() -> None:
    role = MAKERS[sys.argv[1]]()
    summed = [0.0, 0.0]
    met = meet_servers(role)
    if role.is_worker():
        role._all_reduce([1.0, float(role.worker_index())], summed)
    print(
        json.dumps(
            {
                "worker": role.is_worker(), "index": role.worker_index(),
                "rank": role._get_rank(), "size": role._get_size(), "summed": summed,
                "workers": role._worker_gather(role.worker_index()),
                "all": role._all_gather(role._get_rank()),
                "met": met, "servers": role.get_pserver_endpoints(), "trainers": role.get_trainer_endpoints(),
            }
        )
    )  # fmt: skip
    role._barrier_worker()
    role._barrier_all()
    role._finalize()


if __name__ == "__main__":
    main()
