"""Import paths of release 1.8 below `fluid.incubate` and `paddle.fluid.incubate`."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = {
    "base.role_maker": "PaddleCloudRoleMaker UserDefinedRoleMaker UserDefinedCollectiveRoleMaker "
    "GeneralRoleMaker MPISymetricRoleMaker RoleMakerBase Role",
    "base.fleet_base": "Fleet DistributedOptimizer Mode",
    "base.mode": "Mode",
    "collective": "fleet Collective CollectiveOptimizer DistributedStrategy TrainStatus LocalFS",
    "parameter_server.distribute_transpiler": "fleet DistributedTranspiler TranspilerOptimizer "
    "StrategyFactory DistributeTranspilerConfig",
    "parameter_server.distribute_transpiler.distributed_strategy": "StrategyFactory SyncStrategy "
    "AsyncStrategy HalfAsyncStrategy GeoStrategy TrainerRuntimeConfig ServerRuntimeConfig "
    "DistributedStrategy",
    "utils.http_server": "KVServer KVHTTPServer KVHandler",
    "utils.fleet_util": "FleetUtil",
    "utils.fleet_barrier_util": "check_all_trainers_ready",
    "utils.utils": "load_program save_program program_type_trans parse_program graphviz",
}


@pytest.mark.parametrize("path", PATHS)
def test_names_are_where_scripts_import_them(path: str) -> None:
    module = import_module(f"fluid.incubate.fleet.{path}")
    assert set(PATHS[path].split()) <= set(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_paddle_shows_the_same_objects() -> None:
    lines = ["import fluid", "fluid.install_as_paddle()"]
    for path, names in PATHS.items():
        here = path.replace(".", "_")
        lines += [
            f"from paddle.fluid.incubate.fleet.{path} import {names.split()[0]} as shown",
            f"import fluid.incubate.fleet.{path} as {here}",
            f"assert shown is {here}.{names.split()[0]}",
        ]
    lines += [
        "import paddle.distributed.launch_ps, paddle.fluid.incubate",
        "from paddle.distributed.fs_wrapper import LocalFS",
        "assert fluid.incubate.__spec__.name == 'fluid.incubate'",
        "try:\n    import paddle.fluid.incubate.fleet.base.none",
        "except ModuleNotFoundError as error:\n    assert 'fleet.base.none' in str(error)",
        "else:\n    raise AssertionError",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT, timeout=60)
