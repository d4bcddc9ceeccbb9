"""Answers requests with a saved model in one thread or several, for `serve.py`: ours or 1.8.5's.

A model is a folder with `__model__`, parameters in `params` and a request in `feed.npz`, where
sequences have their offsets as `NAME@LOD0`. In mode `clones2`, two threads have a predictor of
release 1.8.5 each, clones of one, as it requires; in `shared2`, they call one `fluid.Predictor`.
Python 3.7 and NumPy.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.workers import protocol

BURST = 20
"""Requests that each thread answers in a step."""

LOD = "@LOD0"


def preparing(fluid):
    """The `prepare` of `protocol.serve`: a step is a burst of requests in each thread at once."""

    def prepare(folder, mode):
        way, threads = mode[:-1], int(mode[-1])
        answers = WAYS[way](fluid, Path(folder), threads)
        pool = ThreadPoolExecutor(threads)
        return lambda: list(pool.map(burst, answers))

    return prepare


def burst(answer):
    """Answer some requests consecutively."""
    for _ in range(BURST):
        answer()


def request(folder):
    """The arrays of a request, and its LoD offsets."""
    with np.load(str(folder / "feed.npz")) as inputs:
        arrays = {name: inputs[name] for name in inputs.files if LOD not in name}
        return arrays, {
            name: inputs[name + LOD].tolist() for name in arrays if name + LOD in inputs
        }


def clones(fluid, folder, threads):
    """A function for each thread, over its clone of a predictor."""
    config = fluid.core.AnalysisConfig(str(folder / "__model__"), str(folder / "params"))
    config.disable_gpu()
    config.disable_glog_info()
    config.switch_use_feed_fetch_ops(False)
    first = fluid.core.create_paddle_predictor(config)
    predictors = [first] + [first.clone() for _ in range(threads - 1)]
    return [answering(predictor, *request(folder)) for predictor in predictors]


def answering(predictor, arrays, offsets):
    """A function that fills the inputs, runs, and reads the outputs."""

    def answer():
        for name, array in arrays.items():
            tensor = predictor.get_input_tensor(name)
            tensor.copy_from_cpu(array)
            if name in offsets:
                tensor.set_lod([offsets[name]])
        predictor.zero_copy_run()
        names = predictor.get_output_names()
        return [predictor.get_output_tensor(name).copy_to_cpu() for name in names]

    return answer


def shared(fluid, folder, threads):
    """The same function for all threads: a call of our predictor."""
    predictor = fluid.create_predictor(folder, "__model__", "params")
    arrays, offsets = request(folder)
    feed = dict(arrays)
    for name, levels in offsets.items():
        feed[name] = fluid.LoDTensor(arrays[name])
        feed[name].set_lod([levels])
    return [lambda: predictor.run(feed)] * threads


WAYS = {"clones": clones, "shared": shared}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fluid", default="paddle.fluid", help="the module to serve with")
    protocol.serve(preparing(importlib.import_module(parser.parse_args().fluid)))
