"""One process of jobs with parameter servers: `role.py JOBS ROLE NUMBER`, JOBS is a JSON file.

It takes part in one job after the other, in those that have so many processes of its role. Trainers
write their parameters and the losses of all steps to `OUT/trainer_NUMBER.npz`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fluid
from fluid.communicator import Communicator
from fluid.parameter_server.saving import merged_values
from tests.fluid.parameter_server.nets import MODELS
from tests.golden import zoo


def build(job: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Main program, startup program, loss and what draws a feed."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, _, draw = MODELS[job["model"]](fluid)
        rate = job.get("rate")
        created = fluid.optimizer.SGD(rate) if rate else zoo.optimizer(fluid, job["optimizer"])
        if job.get("epsilon") and hasattr(created, "_epsilon"):
            created._epsilon = job["epsilon"]
        if job.get("slower") and isinstance(created._learning_rate, float):
            created._learning_rate /= job["slower"]
        created.minimize(loss)
    return main, startup, loss, draw


def batches(job: dict[str, Any], draw: Any) -> list[dict[str, Any]]:
    """The whole batch of every step; with `equal_shares`, that of each trainer is the same."""
    random = np.random.default_rng(3)
    copies = job["trainers"] if job.get("equal_shares") else 1
    results = [draw(random, job["rows"] // copies) for _ in range(job["steps"])]
    return [{name: np.concatenate([v] * copies) for name, v in each.items()} for each in results]


def transpiled(job: dict[str, Any], number: int) -> tuple[Any, Any, Any, Any, Any]:
    """The programs of one process, and the transpiler."""
    main, startup, loss, draw = build(job)
    config = fluid.DistributeTranspilerConfig()
    for name, value in job.get("config", {}).items():
        setattr(config, name, value)
    transpiler = fluid.DistributeTranspiler(config=config)
    transpiler.transpile(
        number, main, ",".join(job["endpoints"]), job["trainers"], job.get("sync", True), startup
    )
    return transpiler, main, startup, loss, draw


def share_of(batch: dict[str, Any], job: dict[str, Any], number: int) -> dict[str, Any]:
    """The rows of a batch that a trainer has."""
    return {name: np.array_split(v, job["trainers"])[number] for name, v in batch.items()}


def fed(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch with each row of integers that has several as one sequence."""
    result = dict(batch)
    for name, value in batch.items():
        if value.ndim == 3 and value.dtype == np.int64:
            rows, count = value.shape[:2]
            lengths = [[count] * rows]
            result[name] = fluid.create_lod_tensor(value.reshape(-1, 1), lengths, fluid.CPUPlace())
    return result


def parameters(program: Any, scope: Any) -> dict[str, Any]:
    """The parameters that a scope holds."""
    names = [param.name for param in program.all_parameters()]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def serve(job: dict[str, Any], number: int) -> None:
    """Run a server."""
    endpoint = job["endpoints"][number]
    main, startup = transpiled(job, 0)[0].get_pserver_programs(endpoint)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    if "load" in job:
        fluid.io.load_persistables(executor, job["load"], main)
    executor.run(main)


def train(job: dict[str, Any], number: int) -> None:
    """Run a trainer on its share of every batch."""
    train_transpiled(job, number, transpiled(job, number), fluid.global_scope())


def train_transpiled(job: dict[str, Any], number: int, made: Any, scope: Any) -> None:
    """Run a trainer whose programs are made."""
    transpiler, _, startup, loss, draw = made
    executor = fluid.Executor(fluid.CPUPlace())
    main = transpiler.get_trainer_program(wait_port=False)
    executor.run(startup, scope=scope)
    communicator = Communicator(main) if job.get("communicator") else None
    if communicator is not None:
        communicator.start()
    step = main if "devices" not in job else on_devices(main, loss, job["devices"])
    losses = []
    for batch in batches(job, draw)[job.get("first", 0) :]:
        share = share_of(batch, job, number)
        (value,) = executor.run(step, feed=fed(share), fetch_list=[loss], scope=scope)
        losses.append(float(np.mean(value)))
        if "pause" in job:
            print(f"step {len(losses)}", flush=True)
            time.sleep(job["pause"])
    result = parameters(main, scope)
    result |= {n: value for n, value in merged_values(main).items() if n in result}
    if "save" in job and number == 0:
        save(job, executor, main, transpiler)
    if communicator is not None:
        communicator.stop()
    executor.close()
    np.savez(Path(job["out"]) / f"trainer_{number}.npz", losses=losses, **result)


def on_devices(main: Any, loss: Any, count: int) -> Any:
    """A trainer's program on several CPU devices."""
    places = fluid.cpu_places(count)
    return fluid.CompiledProgram(main).with_data_parallel(loss.name, places=places)


def save(job: dict[str, Any], executor: Any, main: Any, transpiler: Any) -> None:
    """Save a model whole, and with ops: one variable, and the shards of a table where they lie."""
    folder = job["save"]
    fluid.io.save_persistables(executor, folder, main)
    saving = fluid.Program()
    plan = transpiler.sharding_plan
    cut = max(plan.shards, key=lambda each: len(each.slices))
    attrs = {
        "endpoints": cut.endpoints,
        "remote_varnames": [part.name for part in cut.slices],
        "slice_varnames": [part.name for part in cut.slices],
        "slice_shapes": [",".join(map(str, part.shape)) for part in cut.slices],
        "shape": list(cut.slices[0].whole),
        "file_path": f"{folder}/received/{cut.param}",
    }
    saving.global_block().append_op("recv_save", attrs=attrs)
    if plan.table is not None:
        attrs = {"dir": f"{folder}/shards", "lookup_table": plan.table.name}
        attrs["epmap"] = list(plan.endpoints)
        saving.global_block().append_op("checkpoint_notify", attrs=attrs)
    executor.run(saving)


def alone(job: dict[str, Any]) -> tuple[dict[str, Any], list[float]]:
    """Parameters and losses of one process on whole batches, or with `share` on one share."""
    main, startup, loss, draw = build(job)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(startup, scope=scope)
    losses = []
    for batch in batches(job, draw):
        if "share" in job:
            batch = share_of(batch, job, job["share"])
        (value,) = executor.run(main, feed=fed(batch), fetch_list=[loss], scope=scope)
        losses.append(float(value[0]))
    return parameters(main, scope), losses


def take_part(jobs: list[dict[str, Any]], role: str, number: int) -> None:
    """Take part in jobs, one after the other."""
    for job in jobs:
        count = len(job["endpoints"]) if role == "server" else job["trainers"]
        if number < count:
            with fluid.scope_guard(fluid.Scope()):
                {"server": serve, "trainer": train}[role](job, number)


if __name__ == "__main__":
    take_part(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], int(sys.argv[3]))
