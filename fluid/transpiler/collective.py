"""Mode `collective`: the program all-reduces gradients or parameters."""

from __future__ import annotations

from collections.abc import Collection

from compiler.ir.program import OpRole
from fluid import unique_name
from fluid.data_parallel.rewrite import insert_all_reduces
from fluid.distributed.job import is_distributed
from fluid.framework import Block, Operator, Program, Variable
from fluid.recording.annotations import Attributes
from fluid.recording.var_types import VarDesc
from fluid.transpiler.distribute.endpoints import endpoint_list

__all__ = ["Collective", "GradAllReduce", "LocalSGD", "MeanAllReduce", "SingleProcessMultiThread"]


class Collective:
    """Base of the collective modes: the startup program creates the rings and broadcasts
    parameters.

    `params` are the names of the parameters shared by all ranks, None for all; tables with
    `is_distributed` never are.
    """

    refuses_jobs = False
    """Whether programs of another distributed job, such as one with servers, are refused."""

    def __init__(self, nrings: int, params: Collection[str] | None = None) -> None:
        self.nrings = nrings
        self.params = params

    def transpile(
        self,
        startup_program: Program,
        main_program: Program,
        rank: int,
        endpoints: object,
        current_endpoint: str,
        wait_port: bool,
    ) -> None:
        """Rewrite both programs for one of several ranks, in place.

        The originals are in `origin_program` of each. `wait_port` is accepted without effect:
        only rank 0 listens at its endpoint, and the startup program waits for all. Raises
        ValueError for endpoints that contradict rank or `current_endpoint`, and for a single one;
        RuntimeError for programs that are rewritten already.
        """
        listed = endpoint_list(endpoints, rank, current_endpoint)
        self._check_ranks(listed)
        if self.nrings < 1:
            raise ValueError(f"nrings must be at least 1, but is {self.nrings}")
        for program in (startup_program, main_program):
            if self._is_rewritten(program):
                raise RuntimeError("the program is transpiled already; transpile a fresh one")
        for program in (startup_program, main_program):
            program.origin_program = program.clone()
        self.endpoints, self.rank, self.current_endpoint = listed, rank, current_endpoint
        self.startup, self.main = startup_program.global_block(), main_program.global_block()
        self._transpile_startup()
        self._transpile_main()

    @property
    def nranks(self) -> int:
        """The number of ranks."""
        return len(self.endpoints)

    def _is_rewritten(self, program: Program) -> bool:
        has_job = self.refuses_jobs and is_distributed(program.job)
        return has_job or program.origin_program is not None

    def _check_ranks(self, endpoints: list[str]) -> None:
        if len(endpoints) < 2:
            raise ValueError(
                "the collective mode needs at least two endpoints in trainers, but has "
                f"{', '.join(endpoints)}: run a single process without transpiling"
            )

    def _transpile_startup(self) -> None:
        for ring in range(self.nrings):
            self._init_ring(ring)
        self._broadcast_params()

    def _init_ring(self, ring: int) -> None:
        name = unique_name.generate("nccl_id")
        var = self.startup.create_var(name=name, persistable=True, type=VarDesc.VarType.RAW)
        others = [endpoint for endpoint in self.endpoints if endpoint != self.current_endpoint]
        attrs = {"rank": self.rank, "endpoint": self.current_endpoint, "other_endpoints": others}
        self.startup.append_op("c_gen_nccl_id", outputs={"Out": var}, attrs=attrs)
        attrs = {"nranks": self.nranks, "rank": self.rank, "ring_id": ring}
        self.startup.append_op("c_comm_init", inputs={"X": var}, attrs=attrs)

    def _broadcast_params(self) -> None:
        """Broadcast the parameters of rank 0; tables distributed over ranks are not broadcast."""
        params = [p for p in self.startup.iter_parameters() if self._is_common(p)]
        for number, param in enumerate(params):
            attrs = {"ring_id": number % self.nrings, "root": 0}
            _append_in_place(self.startup, "c_broadcast", param.name, attrs, OpRole.FORWARD)
        if params:
            _append_syncs(self.startup, params[-1].name, self.nrings, OpRole.FORWARD)

    def _is_common(self, var: Variable | None) -> bool:
        """Whether a variable is a parameter shared by all ranks."""
        chosen = self.params is None or (var is not None and var.name in self.params)
        return chosen and not getattr(var, "is_distributed", False)

    def _transpile_main(self) -> None:
        """Rewrite the main program."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it rewrites")


class GradAllReduce(Collective):
    """All-reduce of gradients, with the loss gradient divided by the number of ranks."""

    def __init__(self, nrings: int = 2, params: Collection[str] | None = None) -> None:
        super().__init__(nrings, params)

    def _transpile_main(self) -> None:
        insert_all_reduces(self.main.program, self.nranks, self.nrings, params=self.params)


class MeanAllReduce(GradAllReduce):
    """Mean of the gradients over the ranks; the loss gradient is not scaled.

    So the gradients of other parameters, which servers average, are not scaled.
    """

    def _transpile_main(self) -> None:
        program = self.main.program
        summed = insert_all_reduces(
            program, self.nranks, self.nrings, scale=False, params=self.params
        )
        updates = (i for i, op in enumerate(self.main.ops) if op.role & OpRole.OPTIMIZE)
        index = next(updates, len(self.main.ops))
        for gradient in summed:
            attrs = {"scale": 1.0 / self.nranks, "op_role": int(OpRole.BACKWARD)}
            self.main.insert_op(index, "scale", {"X": gradient}, {"Out": gradient}, attrs)


def _append_in_place(
    block: Block, type: str, name: str, attrs: Attributes, role: OpRole
) -> Operator:
    attrs = {**attrs, "op_role": int(role)}
    return block.append_op(type, inputs={"X": name}, outputs={"Out": name}, attrs=attrs)


def _append_syncs(block: Block, name: str, nrings: int, role: OpRole) -> None:
    for ring in range(nrings):
        _append_in_place(block, "c_sync_comm_stream", name, {"ring_id": ring}, role)


class LocalSGD(Collective):
    """Local SGD: each rank updates its parameters; after every step they are averaged over the
    ranks.

    A snapshot of each parameter is kept: parameter = snapshot - mean(snapshot - parameter).
    """

    def __init__(self, nrings: int = 2, params: Collection[str] | None = None) -> None:
        super().__init__(nrings, params)

    def snapshot_name(self, param_name: str) -> str:
        """The name of a parameter's snapshot."""
        return param_name + "@SNAPSHOT"

    def _transpile_startup(self) -> None:
        super()._transpile_startup()
        for param in [p for p in self.startup.iter_parameters() if self._is_common(p)]:
            snapshot = self._snapshot(self.startup, param)
            attrs = {"op_role": int(OpRole.FORWARD)}
            slots = {"X": param.name}, {"Out": snapshot}
            self.startup.append_op("assign", inputs=slots[0], outputs=slots[1], attrs=attrs)

    def _snapshot(self, block: Block, param: Variable) -> str:
        """Declare the snapshot of a parameter; its name."""
        name = self.snapshot_name(param.name)
        block.create_var(
            name=name,
            persistable=True,
            stop_gradient=True,
            shape=param.shape,
            dtype=param.dtype,
        )
        return name

    def _transpile_main(self) -> None:
        params = self._insert_reductions()
        for ring in range(self.nrings if params else 0):
            attrs = {"ring_id": ring}
            _append_in_place(self.main, "c_sync_comm_stream", params[-1], attrs, OpRole.OPTIMIZE)
        for name in reversed(params):
            self._append_mean(name)

    def _insert_reductions(self) -> list[str]:
        """After each update, all-reduce the parameter changes; returns the parameters, the last one
        first.
        """
        params: list[str] = []
        for index in reversed(range(len(self.main.ops))):
            for name in self._updated(self.main.ops[index]):
                ring = {"ring_id": len(params) % self.nrings}
                params.append(name)
                self._snapshot(self.main, self.main.vars[name])
                self._insert(index + 1, "elementwise_sub", self._distance(name), {})
                self._insert(index + 2, "c_sync_calc_stream", {"X": name}, {})
                self._insert(index + 3, "c_allreduce_sum", {"X": name}, ring)
        return params

    def _updated(self, op: Operator) -> list[str]:
        """The parameters that an op updates."""
        if not op.role & OpRole.OPTIMIZE or "ParamOut" not in op.outputs:
            return []
        return [n for n in op.outputs["ParamOut"] if self._is_common(self.main.vars.get(n))]

    def _distance(self, name: str) -> dict[str, str]:
        return {"X": self.snapshot_name(name), "Y": name}

    def _insert(self, index: int, type: str, inputs: dict[str, str], attrs: Attributes) -> None:
        """Insert an op into the update that overwrites the parameter, after its last read."""
        attrs = {**attrs, "op_role": int(OpRole.OPTIMIZE)}
        outputs = {"Out": list(inputs.values())[-1]}
        self.main.insert_op(index, type, inputs=inputs, outputs=outputs, attrs=attrs)

    def _append_mean(self, name: str) -> None:
        """Set both parameter and snapshot to snapshot - sum / ranks."""
        role = {"op_role": int(OpRole.OPTIMIZE)}
        scale = {"scale": 1.0 / self.nranks, **role}
        self.main.append_op("scale", {"X": name}, {"Out": name}, scale)
        distance = self._distance(name)
        self.main.append_op("elementwise_sub", distance, {"Out": name}, role)
        self.main.append_op("assign", {"X": name}, {"Out": self.snapshot_name(name)}, role)


class SingleProcessMultiThread(GradAllReduce):
    """All-reduce of gradients over the devices of one process."""

    def __init__(self) -> None:
        super().__init__(1)

    def _check_ranks(self, endpoints: list[str]) -> None:
        pass

    def _transpile_startup(self) -> None:
        self.startup.append_op("c_comm_init_all", attrs={"ring_id": 0})
