"""Runs a saved model on request, for `real_models.py`: in this package, or in a paddle.

The request is JSON: the paths of the program, its parameters and the inputs, the output path, and
the number of timed runs. The last printed line is the reply, `{"release": …, "ms": …}`. Models are
run by a predictor, the serving API: a paddle of any release from 1.8 on by its own, this package by
`fluid.create_predictor`. Python 3.7 and NumPy.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np


def main():
    """Run the model of the request and save its outputs."""
    module, request = sys.argv[1], json.loads(sys.argv[2])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not stand beside the reply
    with np.load(request["feed"]) as arrays:
        feed = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in.")}
        lods = {key[4:]: [arrays[key].tolist()] for key in arrays.files if key.startswith("lod.")}
    paths = Path(request["program"]), request["params"] and Path(request["params"])
    release, run = (ours if module == "fluid" else theirs)(paths, feed, lods)
    outputs = run()
    np.savez(request["out"], *outputs)
    reply = {"release": release, "ms": milliseconds(run, request["runs"])}
    print(json.dumps(reply), file=replies, flush=True)


def milliseconds(run, runs):
    """The minimum time of `runs` runs: other load only adds time."""
    spent = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        spent.append((time.perf_counter() - start) * 1e3)
    return min(spent)


def ours(paths, feed, lods):
    """A function that runs a model by our predictor."""
    fluid = importlib.import_module("fluid")
    program, params = paths
    predictor = fluid.create_predictor(program.parent, program.name, params and params.name)
    for name, levels in lods.items():
        tensor = fluid.LoDTensor()
        tensor.set(feed[name], fluid.CPUPlace())
        tensor.set_lod(levels)
        feed[name] = tensor

    def run():
        return [np.asarray(output) for output in predictor.run(feed)]

    return "ours", run


def theirs(paths, feed, lods):
    """A function that runs a model by a paddle's predictor."""
    release = importlib.import_module("paddle").__version__
    old = release.startswith("1.")
    module = importlib.import_module("paddle.fluid.core" if old else "paddle.inference")
    config = configured(module.AnalysisConfig if old else module.Config, paths)
    if old:
        config.switch_use_feed_fetch_ops(False)
    predictor = (module.create_paddle_predictor if old else module.create_predictor)(config)
    input_of = predictor.get_input_tensor if old else predictor.get_input_handle
    output_of = predictor.get_output_tensor if old else predictor.get_output_handle
    go = predictor.zero_copy_run if old else predictor.run

    def run():
        for name in predictor.get_input_names():
            input_of(name).copy_from_cpu(feed[name])
            if name in lods:
                input_of(name).set_lod(lods[name])
        go()
        return [output_of(name).copy_to_cpu() for name in predictor.get_output_names()]

    return release, run


def configured(kind, paths):
    """A predictor's settings: on the CPU, with the common number of threads."""
    program, params = paths
    config = kind(str(program), str(params)) if params else kind(str(program.parent))
    config.disable_gpu()
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return config


if __name__ == "__main__":
    main()
