"""The ids that are drawn for feeds of embeddings."""

import numpy as np

import fluid
from compiler.debugging.id_limits import id_limits
from compiler.debugging.values import inputs
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import Dim
from fluid import layers


def test_feeds_that_only_embeddings_read_have_the_rows_of_the_smallest() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        word, both, other, flag = (
            fluid.data(name, [None, 1], "int64") for name in ("word", "both", "other", "flag")
        )
        rows = [
            layers.embedding(layers.reshape(word, [-1, 1]), [70, 4]),
            layers.embedding(word, [50, 4]),
            layers.embedding(both, [30, 4]),
            layers.embedding(both, [20, 4]),
            layers.embedding(other, [9, 4]),
            layers.one_hot(other, 3),
            layers.cast(layers.equal(word, flag), "float32"),
        ]
        program = fluid.default_main_program()
    feeds = dict.fromkeys(("word", "both", "other", "flag"), (Dim.named("N"), 1))
    graph = to_graph(program, feeds, [row.name for row in rows])
    assert id_limits(graph) == {"word": 50, "both": 20}
    sizes = dict.fromkeys({name for feed in graph.feeds() for name in feed.type.names}, 40)
    drawn, again = (inputs(graph.feeds(), {}, sizes, limits=id_limits(graph)) for _ in range(2))
    assert 30 <= drawn["word"].max() < 50 and len({*drawn["word"].flat}) > 9
    assert drawn["word"].dtype == "int64" and drawn["both"].max() < 20
    assert not drawn["other"].any() and not drawn["flag"].any()
    assert all(np.array_equal(drawn[name], again[name]) for name in drawn)
