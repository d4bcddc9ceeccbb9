"""Writes a graph as an ONNX model, for tools that read ONNX.

Start with `export`: it walks the ops of a graph. Pointwise ops are traced and written node by node
(`pointwise`); other ops have a converter in a file of their kind (`layers`, `shapes`, `reductions`,
`products`, `images`, `sequences`, `recurrent`, `control`). `nodes` holds the graph that is being
written: names, constants, and sizes that are known only when the model runs.
"""
