"""`InMemoryDataset.global_shuffle` over the workers of a launched fleet: samples change hands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """\
import json, sys
import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import fleet

fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
rank = fleet.worker_index()
label = fluid.layers.data("label", [1], dtype="int64")
words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
dataset.set_use_var([label, words])
dataset.set_batch_size(5)
dataset.set_filelist([f"{sys.argv[1]}/part-{rank}.txt"])
dataset.load_into_memory()
np.random.seed(7)
dataset.global_shuffle(fleet)
kept = [[int(label[0]), *map(int, words)] for (label, words), _ in dataset.dataset.samples]
print(json.dumps({"kept": kept, "all": dataset.get_memory_data_size(fleet)}), flush=True)
"""


def test_two_workers_exchange_samples(tmp_path: Path) -> None:
    for rank in range(2):
        lines = [f"1 {100 * rank + i + 1} {1 + i % 3} " + "7 " * (1 + i % 3) for i in range(20)]
        (tmp_path / f"part-{rank}.txt").write_text("\n".join(lines) + "\n")
    script, logs = tmp_path / "shuffle.py", tmp_path / "logs"
    script.write_text(SCRIPT)
    flags = ["--nproc_per_node", "2", "--log_dir", str(logs)]
    command = [sys.executable, "-m", "fleet.launch", *flags, str(script), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    written = {path.name: path.read_text() for path in logs.glob("workerlog.*")}
    assert done.returncode == 0, f"{done.stderr}\n{written}"
    results = [json.loads((logs / f"workerlog.{r}").read_text().splitlines()[-1]) for r in range(2)]
    kept = [{row[0]: row[1:] for row in each["kept"]} for each in results]
    assert [len(each) for each in kept] == [20, 20]
    assert sorted([*kept[0], *kept[1]]) == sorted([*range(1, 21), *range(101, 121)])
    assert all(any(number > 100 for number in each) != all(n > 100 for n in each) for each in kept)
    for label, words in (kept[0] | kept[1]).items():
        assert words == [7] * (1 + (label - 1) % 100 % 3)
    assert [each["all"] for each in results] == [40, 40]
