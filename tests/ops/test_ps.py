"""Ops that reach parameter servers: what they ask for, and what they do with the answer."""

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from compiler.ir.conversion.remote_lookups import as_remote
from compiler.ir.opdef import find
from compiler.ir.program import OpDesc
from compiler.ops.ps.tables import unique_ids
from tests.ops.samples import numbers

ENDPOINTS = ["a:1", "b:1"]


class Servers:
    """Two servers that note what is sent; prefetch answers rows of one table."""

    def __init__(self, table=None, sections=()):
        self.calls, self.table, self.sections = [], table, sections

    def send(self, *given):
        self.calls.append(given)

    def recv(self, names, endpoints, trainer_id):
        self.calls.append((names, endpoints, trainer_id))
        return [np.full((2, 3), i, np.float32) for i, _ in enumerate(names)]

    def prefetch(self, names, endpoints, rows, trainer_id):
        starts = {f"w.block{i}": s for i, s in enumerate(np.cumsum([0, *self.sections])[:-1])}
        self.calls.append(names)
        return [self.table[row + starts[name]] for name, row in zip(names, rows, strict=True)]


def evaluated(kind, attrs, inputs, server=None):
    op = find(kind)(attrs)
    op.parameter_server = server
    return op.evaluate(inputs)


def test_send_cuts_a_gradient_into_the_blocks_of_its_names():
    server, gradient = Servers(), numbers(5, 2)
    attrs = {"epmap": ENDPOINTS, "send_varnames": ["g.block0", "g.block1"], "sections": [3, 2]}
    evaluated("send", attrs, {"X": [gradient]}, server)
    names, endpoints, arrays, rows, trainer, merge_add, through = server.calls[0]
    assert (names, endpoints, rows) == (["g.block0", "g.block1"], ENDPOINTS, None)
    assert (trainer, merge_add, through) == (0, False, True)
    np.testing.assert_array_equal(np.concatenate(arrays), gradient)


def test_send_numbers_sparse_rows_within_their_block():
    server, values, rows = Servers(), numbers(4, 2), np.array([4, 0, 3, 4])
    attrs = {"epmap": ENDPOINTS, "send_varnames": ["g.block0", "g.block1"], "sections": [3, 2]}
    evaluated("send", attrs, {"X": [values], "X_rows": [rows]}, server)
    _, _, arrays, numbered, *_ = server.calls[0]
    assert [each.tolist() for each in numbered] == [[0], [1, 0, 1]]
    np.testing.assert_array_equal(arrays[1], values[[0, 2, 3]])


def test_send_scales_by_the_norm_of_all_gradients():
    server, gradient = Servers(), np.array([3.0, 4.0], np.float32)
    attrs = {"epmap": ["a:1"], "clip_norm": 1.0, "X_names": ["g"]}
    result = evaluated("send", attrs, {"X": [gradient], "ClipX": [gradient]}, server)
    np.testing.assert_allclose(result["Scale"], [0.2])
    np.testing.assert_allclose(server.calls[0][2][0], [0.6, 0.8], rtol=1e-6)
    inputs = {"X": [gradient], "Factor": result["Scale"]}
    evaluated("send", {"epmap": ["a:1"], "X_names": ["h"]}, inputs, server)
    np.testing.assert_allclose(server.calls[1][2][0], [0.6, 0.8], rtol=1e-6)


def test_recv_joins_the_blocks_of_one_variable():
    attrs = {"epmap": ENDPOINTS, "recv_varnames": ["w.block0", "w.block1"], "Out_names": ["w"]}
    result = evaluated("recv", attrs, {}, Servers())["Out"]
    assert [each.shape for each in result] == [(4, 3)]
    attrs = {"epmap": ENDPOINTS, "Out_names": ["w.block0", "w.block1"]}
    assert len(evaluated("recv", attrs, {}, Servers())["Out"]) == 2


def test_a_remote_lookup_asks_for_each_row_once_and_only_where_it_is():
    table = numbers(5, 2)
    server = Servers(table, [3, 2])
    attrs = {
        "table_names": ["w.block0", "w.block1"],
        "height_sections": [3, 2],
        "endpoints": ENDPOINTS,
        "padding_idx": 1,
    }
    ids = [np.array([[4], [4], [1]]), np.array([[[3]], [[4]]])]
    result = evaluated("distributed_lookup_table", attrs, {"Ids": ids, "W": table}, server)
    first, second = result["Outputs"]
    np.testing.assert_array_equal(first, np.stack([table[4], table[4], np.zeros(2)]))
    np.testing.assert_array_equal(second, table[[[3], [4]]])
    evaluated("distributed_lookup_table", attrs, {"Ids": ids[1:], "W": table}, server)
    assert server.calls == [["w.block0", "w.block1"], ["w.block1"]]


def test_an_id_beyond_the_table_is_an_error():
    attrs = {"table_names": ["w"], "height_sections": [5], "endpoints": ["a:1"]}
    with pytest.raises(IndexError, match="row indices range from 7 to 7, expected 0 to 4"):
        inputs = {"Ids": [np.array([[7]])], "W": numbers(5, 2)}
        evaluated("distributed_lookup_table", attrs, inputs, Servers())


def test_without_servers_the_error_reports_what_to_run():
    with pytest.raises(RuntimeError, match="connected to none; run it by an Executor in a job"):
        evaluated("send", {"epmap": ["a:1"], "X_names": ["g"]}, {"X": [numbers(2)]})


def test_table_slices_are_initialised_as_the_whole_table():
    whole = find("uniform_random")({"shape": [6, 2], "seed": 3}).evaluate({})["Out"]
    part = {"shape": [2, 2], "seed": 3, "whole_shape": [6, 2], "first_row": 1, "row_step": 3}
    result = find("uniform_random")(part).evaluate({})["Out"]
    np.testing.assert_array_equal(result, whole[1::3])


TREE = {"num_classes": 6, "is_sparse": True}
FORKS = np.array([[0, 2, -1], [0, 1, 4], [3, -1, -1], [0, 1, 4]])
TURNS = np.array([[1, 0, -1], [0, 1, 1], [1, -1, -1], [0, 1, 0]])
PATHS = {"PathTable": FORKS, "PathCode": TURNS, "Label": np.array([[0], [1], [2], [3]])}
DRAWN = {"num_total_classes": 5, "num_neg_samples": 3, "custom_neg_classes": [0, 1, 3]}


@pytest.mark.parametrize(
    ("kind", "slot", "inputs", "attrs"),
    [
        ("lookup_table", "W", {"Ids": np.array([[4], [0], [4]])}, {"padding_idx": 0}),
        ("lookup_table_v2", "W", {"Ids": np.array([[4, 0], [2, 4]])}, {}),
        (
            "nce",
            "Weight",
            {
                "Input": numbers(4, 2),
                "Label": np.array([[4], [2], [0], [2]]),
                "Bias": numbers(5, 1),
            },
            DRAWN,
        ),
        ("nce", "Weight", {"Input": numbers(1, 2), "Label": np.array([[4]])}, {**DRAWN, "seed": 7}),
        ("hierarchical_sigmoid", "W", {"X": numbers(4, 2), **PATHS, "Bias": numbers(5, 1)}, TREE),
        ("hierarchical_sigmoid", "W", {"X": numbers(2, 2), "Label": np.array([[3], [0]])}, TREE),
    ],
)
def test_remote_rows_are_requested_once(kind, slot, inputs, attrs):
    """As the reference's own tests of remote lookups, `nce` and `hierarchical_sigmoid` demand."""
    table = numbers(5, 2)
    local = find(kind)(attrs).evaluate({**inputs, slot: table})
    remote = {"remote_prefetch": True, "table_names": ["w.block0", "w.block1"]}
    remote |= {"height_sections": [3, 2], "epmap": ENDPOINTS}
    slots = {name: [name] for name in (*inputs, slot)}
    outputs = {name: [name] for name in local if not name.endswith("_lod")}
    asked = as_remote(OpDesc(kind, slots, outputs, {**attrs, **remote}))
    assert asked.type != kind
    server = Servers(table, [3, 2])
    values = {**inputs, slot: table}
    if kind.startswith("lookup"):
        values["Ids"] = [values["Ids"]]
    results = evaluated(asked.type, asked.attrs, values, server)
    assert len(server.calls) == 1
    if kind.startswith("lookup"):
        results = {"Out": results["Outputs"][0]}
    for name, value in results.items():
        np.testing.assert_allclose(value, local[name], rtol=1e-6)


def test_losses_on_remote_tables_have_no_gradient_here():
    attrs = {"remote_prefetch": True, "table_names": ["w"], "epmap": ["a:1"]}
    with pytest.raises(
        CompileError, match="nce_grad needs rows of 'w', which is on a parameter server"
    ):
        as_remote(OpDesc("nce_grad", {}, {}, attrs))
    assert as_remote(OpDesc("nce", {}, {}, {"remote_prefetch": True})).type == "nce"


def test_recv_save_writes_a_variable_whole():
    saved = {}

    class Saving(Servers):
        def save_tensor(self, path, array, overwrite):
            saved[path] = array, overwrite

    attrs = {"endpoints": ENDPOINTS, "remote_varnames": ["w.block0", "w.block1"]}
    attrs |= {"slice_shapes": ["2,3", "2,3"], "shape": [4, 3], "file_path": "w"}
    evaluated("recv_save", attrs, {}, Saving())
    array, overwrite = saved["w"]
    np.testing.assert_array_equal(array[:, 0], [0, 0, 1, 1])
    assert overwrite
    for wrong in ({"slice_shapes": ["2,3", "1,3"]}, {"shape": [5, 3]}, {"dtype": 3}):
        with pytest.raises(ValueError, match="recv_save"):
            evaluated("recv_save", attrs | wrong, {}, Saving())


@pytest.mark.parametrize(
    "ids",
    [
        np.zeros(0, np.int64),
        np.array([7, 3, 7, 7, 0]),
        np.random.default_rng(0).integers(0, 50, 1000),
        np.array([1 << 40, 5, 5]),
        np.array([3, -1, 3]),
    ],
    ids=["none", "few", "many", "large", "negative"],
)
def test_ids_are_requested_once(ids):
    unique, places = unique_ids(ids)
    expected, inverse = np.unique(ids, return_inverse=True)
    np.testing.assert_array_equal(unique, expected)
    np.testing.assert_array_equal(places, inverse.reshape(-1))


def test_merged_rows_have_the_lod_of_their_ids():
    """Two lookups in one distributed table, of sequences of different lengths."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        ids = [fluid.data(name, [None, 1], "int64", lod_level=1) for name in ("a", "b")]
        known, rows = fluid.data("known", [None, 1], "int64"), fluid.data("rows", [None, 2])
        block = main.global_block()
        outs = [block.create_var(name=f"{var.name}.out", dtype="float32") for var in ids]
        inputs = {"Ids": ids, "Rows": known, "X": rows}
        block.append_op("merge_ids", inputs=inputs, outputs={"Out": outs})
    lengths = {"a": [1, 2], "b": [2, 1, 1]}
    feed = {
        name: fluid.create_lod_tensor(
            np.array([[7], [3], [7], [3]])[: sum(each)], [each], fluid.CPUPlace()
        )
        for name, each in lengths.items()
    }
    feed |= {"known": np.array([[3], [7]]), "rows": np.array([[1, 2], [3, 4]], "float32")}
    results = fluid.Executor().run(main, feed, outs, return_numpy=False)
    for result, each in zip(results, lengths.values(), strict=True):
        assert result.recursive_sequence_lengths() == [each]
        assert np.array(result)[:2].tolist() == [[3, 4], [1, 2]]
