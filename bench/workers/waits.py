"""One wait of a user, in milliseconds, measured in this process for `waits.py`.

`python waits.py MODULE NAME` with MODULE `fluid` or `paddle.fluid`, NAME a function of this file.
Python 3.7, only NumPy and a fluid, so that the reference is measured by the same code.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.nets import timed

BOXES, CLASSES = 8732, 21
LENGTHS = 30
BATCHES = 12
STEPS = 20


def importing(name):
    """The import of fluid; NumPy is already imported."""
    start = time.perf_counter()
    importlib.import_module(name)
    return time.perf_counter() - start


def first_run(name):
    """The startup program and the first step of a recorded Transformer."""
    fluid = importlib.import_module(name)
    recorded = timed.model(fluid, "transformer_encoder")
    batches = timed.drawn("transformer_encoder", fluid=fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    start = time.perf_counter()
    executor.run(recorded.startup)
    executor.run(recorded.main, feed=next(batches), fetch_list=[recorded.loss])
    return time.perf_counter() - start


def equal_program(name):
    """A step of a program that a script records again, with a new Executor."""
    fluid = importlib.import_module(name)

    def once():
        programs = fluid.program_guard(fluid.Program(), fluid.Program())
        with programs, fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            x = fluid.layers.data("x", [32])
            loss = fluid.layers.mean(fluid.layers.fc(x, 8, act="tanh"))
            fluid.optimizer.SGD(0.1).minimize(loss)
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(fluid.default_startup_program())
            executor.run(feed={"x": np.ones((4, 32), "float32")}, fetch_list=[loss])

    return _median(once)


def new_length(name):
    """A step with sentence lengths that were never fed before."""
    fluid = importlib.import_module(name)
    x = fluid.layers.data("x", [1], dtype="int64", lod_level=1)
    y = fluid.layers.data("y", [1], dtype="int64")
    words = fluid.layers.embedding(x, [100, 16])
    both = fluid.layers.embedding(y, [100, 16]) - fluid.layers.sequence_pool(words, "max")
    loss = fluid.layers.mean(both)
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    spent = []
    for length in range(3, 3 + LENGTHS):
        ids = np.arange(3 * length).reshape(-1, 1) % 100
        feed = {
            "x": fluid.create_lod_tensor(ids, [[length, length + 1, length - 1]], fluid.CPUPlace()),
            "y": np.ones((3, 1), "int64"),
        }
        start = time.perf_counter()
        executor.run(feed=feed, fetch_list=[loss])
        spent.append(time.perf_counter() - start)
    return sorted(spent[5:])[len(spent[5:]) // 2]


def new_batch(name):
    """A training step of a Transformer with a batch size that was never fed before."""
    fluid = importlib.import_module(name)
    recorded = timed.model(fluid, "transformer_encoder")
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(recorded.startup)
    spent = []
    for batch in range(2, 2 + BATCHES):
        values = timed.draw("transformer_encoder", np.random.RandomState(batch), batch)
        feed = timed.fed(fluid, values)
        start = time.perf_counter()
        executor.run(recorded.main, feed=feed, fetch_list=[recorded.loss])
        spent.append(time.perf_counter() - start)
    return sorted(spent[3:])[len(spent[3:]) // 2]


def nms(name):
    """`multiclass_nms` of the boxes of an SSD at 300 × 300."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    corners = random.uniform(0, 0.8, (1, BOXES, 2))
    sizes = random.uniform(0.05, 0.2, (1, BOXES, 2))
    values = {
        "boxes": np.concatenate([corners, corners + sizes], 2).astype("float32"),
        "scores": random.dirichlet([0.1] * CLASSES, (1, BOXES)).astype("float32").swapaxes(1, 2),
    }
    boxes = fluid.data("boxes", [1, BOXES, 4])
    scores = fluid.data("scores", [1, CLASSES, BOXES])
    output = fluid.layers.multiclass_nms(boxes, scores, 0.01, 400, 200, nms_threshold=0.45)
    executor = fluid.Executor(fluid.CPUPlace())
    return _median(lambda: executor.run(feed=values, fetch_list=[output], return_numpy=False))


def joined_length(name):
    """A step with a length never fed before, of two feeds whose rows the program multiplies."""
    fluid = importlib.import_module(name)
    feeds = [fluid.layers.data(each, [1], dtype="int64", lod_level=1) for each in "xy"]
    words = [fluid.layers.embedding(each, [100, 16]) for each in feeds]
    loss = fluid.layers.mean(fluid.layers.sequence_pool(words[0] * words[1], "max"))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    spent = []
    for length in range(8, 8 + LENGTHS):
        ids = np.arange(length).reshape(-1, 1) % 100
        parts = {"x": [length - 2, 2], "y": [5, length - 5]}
        feed = {
            each: fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
            for each, lengths in parts.items()
        }
        start = time.perf_counter()
        executor.run(feed=feed, fetch_list=[loss])
        spent.append(time.perf_counter() - start)
    return sorted(spent[5:])[len(spent[5:]) // 2]


def beam_search(name):
    """A step of beam search: 32 sentences with 10 beams, 200 candidates each."""
    fluid = importlib.import_module(name)
    rows, random = 32 * 10, np.random.RandomState(0)
    values = {
        "before": random.randint(1, 1000, (rows, 1)),
        "totals": random.rand(rows, 1).astype("float32"),
        "words": random.randint(1, 1000, (rows, 200)),
        "scores": random.rand(rows, 200).astype("float32"),
    }
    inputs = [
        fluid.data(name, [None, value.shape[1]], value.dtype.name, lod_level=2)
        for name, value in values.items()
    ]
    fetch = list(fluid.layers.beam_search(*inputs, beam_size=10, end_id=0))
    levels = [[10] * 32, [1] * rows]
    feed = {
        name: fluid.create_lod_tensor(value, levels, fluid.CPUPlace())
        for name, value in values.items()
    }
    executor = fluid.Executor(fluid.CPUPlace())
    return _median(lambda: executor.run(feed=feed, fetch_list=fetch, return_numpy=False))


def sorting(name):
    """`argsort` of 100 rows of 10,000 values."""
    fluid = importlib.import_module(name)
    values = np.random.RandomState(0).rand(100, 10000).astype("float32")
    output = fluid.layers.argsort(fluid.data("x", [-1, 10000]))
    return _fetched(fluid, {"x": values}, list(output))


def selecting(name):
    """`topk` of 100 rows of 10,000 values with k = 20."""
    fluid = importlib.import_module(name)
    values = np.random.RandomState(0).rand(100, 10000).astype("float32")
    output = fluid.layers.topk(fluid.data("x", [-1, 10000]), 20)
    return _fetched(fluid, {"x": values}, list(output))


def scattering(name):
    """`scatter` that adds 10,000 rows, some of them to the same one."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    rows = random.rand(10000, 8).astype("float32")
    feed = {"x": rows, "ids": random.randint(0, 10000, 10000), "updates": rows}
    x, updates = (fluid.data(each, [-1, 8]) for each in ("x", "updates"))
    ids = fluid.data("ids", [-1], "int64")
    return _fetched(fluid, feed, [fluid.layers.scatter(x, ids, updates, overwrite=False)])


def merged_boxes(name):
    """`locality_aware_nms` of 10,000 boxes."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    corners, sizes = random.rand(1, 10000, 2) * 1000, random.rand(1, 10000, 2) * 50
    values = {
        "boxes": np.concatenate([corners, corners + sizes], 2).astype("float32"),
        "scores": random.rand(1, 1, 10000).astype("float32"),
    }
    boxes, scores = fluid.data("boxes", [-1, 10000, 4]), fluid.data("scores", [-1, 1, 10000])
    output = fluid.layers.locality_aware_nms(boxes, scores, 0.0, 1000, 200, nms_threshold=0.3)
    return _fetched(fluid, values, [output])


def sparse_devices(name):
    """A step of two CPU devices that updates a sparse table of 500,000 rows."""
    return _median(_devices(name, 2, sparse=True))


def two_devices(name):
    """A step of linear regression on two CPU devices."""
    return _median(_devices(name, 2))


def ten_devices(name):
    """A step of linear regression on ten CPU devices."""
    return _median(_devices(name, 10))


def _devices(name, count, sparse=False):
    """A function that runs a step on CPU devices: a sparse table, or linear regression."""
    os.environ["CPU_NUM"] = str(count)
    fluid = importlib.import_module(name)
    if sparse:
        x = fluid.data("x", [None, 1], "int64")
        predicted = fluid.embedding(x, [500000, 32], is_sparse=True)
        feed = {"x": np.arange(64).reshape(64, 1)}
    else:
        x = fluid.data("x", [None, 13])
        predicted = fluid.layers.fc(x, 1)
        feed = {"x": np.ones((64, 13), "float32")}
    loss = fluid.layers.mean(fluid.layers.square(predicted))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program())
    program = program.with_data_parallel(loss_name=loss.name)
    return lambda: executor.run(program, feed=feed, fetch_list=[loss])


def deconvolution(name):
    """A training step of a transposed convolution that doubles a 28 × 28 image of 64 channels."""
    fluid = importlib.import_module(name)
    x = fluid.data("x", [8, 64, 28, 28])
    x.stop_gradient = False
    loss = fluid.layers.mean(
        fluid.layers.conv2d_transpose(x, 32, filter_size=4, stride=2, padding=1)
    )
    fluid.optimizer.SGD(0.1).minimize(loss)
    return _stepped(fluid, {"x": np.ones((8, 64, 28, 28), "float32")}, loss)


def deformable_convolution(name):
    """A deformable convolution of 40 × 40 images and all its gradients."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    shapes = {"image": (2, 32, 40, 40), "offset": (2, 18, 40, 40), "mask": (2, 9, 40, 40)}
    feed = {key: random.rand(*shape).astype("float32") for key, shape in shapes.items()}
    inputs = [fluid.data(key, list(shape)) for key, shape in shapes.items()]
    for value in inputs:
        value.stop_gradient = False
    output = fluid.layers.deformable_conv(*inputs, 32, 3, padding=1, im2col_step=1)
    loss = fluid.layers.reduce_mean(output)
    gradients = fluid.gradients(loss, inputs)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return _fetched(fluid, feed, [loss, *gradients])


def yolo_loss(name):
    """`yolov3_loss` of a head of 26 × 26 cells with 30 true boxes an image, and its gradient."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    feed = {
        "head": random.rand(4, 75, 26, 26).astype("float32"),
        "boxes": random.uniform(0.1, 0.5, (4, 30, 4)).astype("float32"),
        "labels": random.randint(0, 20, (4, 30)).astype("int32"),
    }
    head = fluid.data("head", [4, 75, 26, 26])
    head.stop_gradient = False
    true = [fluid.data("boxes", [4, 30, 4]), fluid.data("labels", [4, 30], "int32")]
    anchors = [10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326]
    loss = fluid.layers.yolov3_loss(head, *true, anchors, [3, 4, 5], 20, 0.7, 16)
    loss = fluid.layers.mean(loss)
    return _fetched(fluid, feed, [loss, *fluid.gradients(loss, head)])


def _corners(random, count, extent):
    """Boxes [count, 4] of up to a fifth of an image's extent."""
    corner, size = random.rand(count, 2) * 0.8, random.rand(count, 2) * 0.18 + 0.02
    return (np.concatenate([corner, corner + size], 1) * extent).astype("float32")


def _sequences(fluid, rows, lengths):
    return fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())


def pooled_boxes(name):
    """`roi_pool` of 200 boxes of two images of 32 channels, and its gradient."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    boxes = _sequences(fluid, _corners(random, 200, 600), [100, 100])
    feed = {"x": random.rand(2, 32, 40, 60).astype("float32"), "boxes": boxes}
    x = fluid.data("x", [2, 32, 40, 60])
    x.stop_gradient = False
    pooled = fluid.layers.roi_pool(x, fluid.data("boxes", [None, 4], lod_level=1), 7, 7, 1 / 16)
    loss = fluid.layers.reduce_sum(pooled)
    return _fetched(fluid, feed, [loss, *fluid.gradients(loss, x)])


def proposed_boxes(name):
    """`generate_proposals` of an image with 15 anchors at 50 × 75 places."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    feed = {
        "scores": random.rand(1, 15, 50, 75).astype("float32"),
        "codes": random.rand(1, 60, 50, 75).astype("float32") * 0.5 - 0.25,
        "image": np.array([[800, 1200, 1.5]], "float32"),
        "anchors": _corners(random, 50 * 75 * 15, 800).reshape(50, 75, 15, 4),
        "variances": np.ones((50, 75, 15, 4), "float32"),
    }
    inputs = [fluid.data(key, list(value.shape)) for key, value in feed.items()]
    outputs = fluid.layers.generate_proposals(*inputs, 6000, 1000, 0.7, 0.1)
    return _fetched(fluid, feed, list(outputs))


def boxes_of_levels(name):
    """`retinanet_detection_output` of three levels with 5250 anchors and 20 classes."""
    fluid = importlib.import_module(name)
    random, counts = np.random.RandomState(0), (4000, 1000, 250)
    feed, levels = {"image": np.array([[800, 800, 1]], "float32")}, []
    for count in counts:
        arrays = {
            f"codes{count}": random.rand(1, count, 4).astype("float32") * 0.2 - 0.1,
            f"scores{count}": random.rand(1, count, 20).astype("float32"),
            f"anchors{count}": _corners(random, count, 800),
        }
        feed.update(arrays)
        levels.append([fluid.data(key, list(value.shape)) for key, value in arrays.items()])
    inputs = [[level[slot] for level in levels] for slot in range(3)]
    output = fluid.layers.retinanet_detection_output(
        *inputs, fluid.data("image", [1, 3]), 0.3, 300, 100, 0.3
    )
    return _fetched(fluid, feed, [output])


def ctc_loss(name):
    """`warpctc` of 16 sequences of 75 steps with 12 labels of 100 classes, and its gradient."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    labels = random.randint(1, 100, (16 * 12, 1)).astype("int32")
    feed = {
        "x": _sequences(fluid, random.rand(16 * 75, 100).astype("float32"), [75] * 16),
        "y": _sequences(fluid, labels, [12] * 16),
    }
    x = fluid.data("x", [None, 100], lod_level=1)
    x.stop_gradient = False
    loss = fluid.layers.warpctc(x, fluid.data("y", [None, 1], "int32", lod_level=1))
    loss = fluid.layers.mean(loss)
    return _fetched(fluid, feed, [loss, *fluid.gradients(loss, x)])


def expanded_rows(name):
    """`sequence_expand` of 64 rows to 20 each, and its gradient."""
    fluid = importlib.import_module(name)
    rows = np.ones((64 * 20, 64), "float32")
    feed = {
        "x": _sequences(fluid, rows[:64], [1] * 64),
        "y": _sequences(fluid, rows, [20] * 64),
    }
    x, y = (fluid.data(each, [None, 64], lod_level=1) for each in "xy")
    x.stop_gradient = False
    loss = fluid.layers.mean(fluid.layers.sequence_expand(x, y))
    return _fetched(fluid, feed, [loss, *fluid.gradients(loss, x)])


def tree_convolution(name):
    """A tree convolution of 8 trees with 60 nodes, and its gradient."""
    fluid = importlib.import_module(name)
    random = np.random.RandomState(0)
    parents = [[random.randint(1, child) for child in range(2, 61)] for _ in range(8)]
    edges = np.stack([np.array(parents), np.tile(np.arange(2, 61), (8, 1))], 2)
    feed = {"x": random.rand(8, 60, 32).astype("float32"), "edges": edges.astype("int32")}
    x = fluid.data("x", [8, 60, 32])
    x.stop_gradient = False
    output = fluid.contrib.layers.tree_conv(x, fluid.data("edges", [8, 59, 2], "int32"), 32, 2)
    loss = fluid.layers.mean(output)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return _fetched(fluid, feed, [loss, *fluid.gradients(loss, x)])


def unique_ids(name):
    """`unique_with_counts` of 20,000 ids, 5,000 of them different."""
    fluid = importlib.import_module(name)
    ids = np.random.RandomState(0).randint(0, 5000, 20000) * 10**9
    output = fluid.layers.unique_with_counts(fluid.data("x", [20000], "int64"))
    return _fetched(fluid, {"x": ids}, list(output))


def similarity_focus(name):
    """`similarity_focus` of two channels of four 28 × 28 images."""
    fluid = importlib.import_module(name)
    images = np.random.RandomState(0).rand(4, 16, 28, 28).astype("float32")
    output = fluid.layers.similarity_focus(fluid.data("x", [4, 16, 28, 28]), 1, [0, 3])
    return _fetched(fluid, {"x": images}, [output])


def small_products(name):
    """A training step of two small layers, with the default number of threads."""
    fluid = importlib.import_module(name)
    x = fluid.data("x", [-1, 256])
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, 256, act="relu"), 256))
    fluid.optimizer.SGD(0.01).minimize(loss)
    return _stepped(fluid, {"x": np.ones((256, 256), "float32")}, loss)


def _fetched(fluid, feed, outputs):
    executor = fluid.Executor(fluid.CPUPlace())
    return _median(lambda: executor.run(feed=feed, fetch_list=outputs, return_numpy=False))


def _stepped(fluid, feed, loss):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return _median(lambda: executor.run(feed=feed, fetch_list=[loss]))


def _median(work):
    """The median seconds of some calls, after a warm-up call."""
    work()
    spent = []
    for _ in range(STEPS):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return sorted(spent)[STEPS // 2]


if __name__ == "__main__":
    module, wait = sys.argv[1:]
    print("milliseconds", globals()[wait](module) * 1e3)
