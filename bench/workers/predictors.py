"""Runs saved models on request, for `cpu.py`: here, in ONNX Runtime, or in a paddle.

Argument: `fluid`, `onnxruntime` or `paddle`. A request's model is a folder with `case.json` (the
paths of the model for everyone) and `feed.npz`; outputs of the first run are saved in it. Python
3.7 and NumPy.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.workers import protocol, real


def preparing(who):
    """The `prepare` of `protocol.serve`; the mode is not used."""

    def prepare(folder, mode):
        run = loaded(who, Path(folder))
        outputs = {f"out{place}": array for place, array in enumerate(run())}
        np.savez(str(Path(folder, f"{who}.npz")), **outputs)
        return run

    return prepare


def loaded(who, folder):
    """A function that runs the model of a folder and returns its outputs."""
    case = json.loads(Path(folder, "case.json").read_text())
    with np.load(str(Path(folder, "feed.npz"))) as arrays:
        feed = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in.")}
        lods = {key[4:]: [arrays[key].tolist()] for key in arrays.files if key.startswith("lod.")}
    if who == "onnxruntime":
        return session(case["onnx"], feed)
    paths = Path(case["program"]), case["params"] and Path(case["params"])
    return (real.ours if who == "fluid" else real.theirs)(paths, feed, lods)[1]


def session(path, feed):
    """A function that runs an ONNX file with the usual optimisations."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    inference_session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = {input_.name for input_ in inference_session.get_inputs()}
    inputs = {name: array for name, array in feed.items() if name in wanted}
    return lambda: inference_session.run(None, inputs)


if __name__ == "__main__":
    protocol.serve(preparing(sys.argv[1]))
