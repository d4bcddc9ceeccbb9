"""`GeoSgdTranspiler`: the programs of a Geo-SGD job."""

from __future__ import annotations

from copy import copy

from fluid.framework import Program
from fluid.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig

__all__ = ["GeoSgdTranspiler"]


class GeoSgdTranspiler(DistributeTranspiler):
    """A `DistributeTranspiler` whose trainers update locally and exchange differences.

    It is the same as a DistributeTranspiler with `config.geo_sgd_mode = True`.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        geo = DistributeTranspilerConfig() if config is None else copy(config)
        geo.geo_sgd_mode = True
        super().__init__(geo)

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = False,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
        **older: object,
    ) -> None:
        """Rewrite programs as `DistributeTranspiler.transpile` does; `sync_mode` has no effect."""
        super().transpile(
            trainer_id, program, pservers, trainers, False, startup_program, current_endpoint,
            **older,
        )  # fmt: skip

    @property
    def vars_info(self) -> dict[str, dict[str, list[str]]]:
        """For each parameter the names, the rows and the servers of its slices, as release 1.8.5
        gives them to its communicator: `var_names`, `sections`, `epmap`, and in `is_sparse` whether
        rows are exchanged; all as text.

        Raises RuntimeError before `transpile`.
        """
        return {
            shards.param: {
                "var_names": [part.name for part in shards.slices],
                "sections": [str(rows) for rows in shards.rows],
                "epmap": shards.endpoints,
                "is_sparse": [str(shards.is_sparse)],
            }
            for shards in sorted(self.sharding_plan.shards, key=lambda shards: shards.param)
        }

    def _get_vars_info(self) -> dict[str, dict[str, list[str]]]:
        return self.vars_info
