"""The forward kernel of attention: an online softmax over blocks of keys.

A program has a block of queries of one matrix. For each block of keys it computes scores, and
rescales sums and results whenever a row's maximum grows (M. Milakov and N. Gimelshein, "Online
normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022). Scores are
float32, in powers of 2. The weight of a key whose score is far below the maximum is 0, where the
op `softmax` has exp(-64).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.triton.attention.emitter import AttentionEmitter, Template
from compiler.codegen.triton.attention.tiles import forward_tile
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.writer import Names

_FORWARD = Template(
    Template.lines("""
tile = tl.program_id(0).to(INDEX)
blocks = tl.cdiv({queries}, ROWS)
matrix = tile // blocks
first = tile % blocks * ROWS
i = first + tl.arange(0, ROWS)
d = tl.arange(0, WIDTH)
e = tl.arange(0, COLUMNS)
query = {q}
most = tl.full((ROWS,), float("-inf"), tl.float32)
total = tl.zeros((ROWS,), tl.float32)
result = tl.zeros((ROWS, COLUMNS), tl.float32)
for start in range(0, {end}, KEYS):
"""),
    Template.lines("""
j = start + tl.arange(0, KEYS)
key = {k}
score = {scores} * {scale}
{masked}
higher = tl.maximum(most, tl.max(score, 1))
reference = tl.where(higher == float("-inf"), 0.0, higher)
power = tl.exp2(score - reference[:, None])
rescale = tl.exp2(most - reference)
total = total * rescale + tl.sum(power, 1)
{kept}
value = {v}
result = {result}
most = higher
"""),
    Template.lines("""
result = result * ({factor} / total)[:, None]
{stored}
{saved}
"""),
    ("out",),
    ("width", "columns"),
)


def emit_attention(
    spec: Attention, operands: Mapping[str, NumpyOperand], name: str, names: Names,
    comment: Sequence[str] = (),
) -> KernelSource:  # fmt: skip
    """Emit the kernel of an attention; `operands` are those it names.

    Its products are those of half precision, or of float32 by parts.
    """
    tile = forward_tile(spec, operands["q"].type.dtype)
    emitter = AttentionEmitter(spec, operands, names.make(name), comment, tile, "j")
    saved = ""
    if "statistics" in operands:
        guard = emitter.guard(i="")
        pairs = enumerate(("most", "total"))
        stores = (f"tl.store({emitter.of_query('statistics', n)}, {x}{guard})" for n, x in pairs)
        saved = "\n".join(stores)
    weight = emitter.factor(emitter.rounded(emitter.unless_dropped("power")))
    query, key, value = map(emitter.factor, ("query", "key", "value"))
    return emitter.emit(
        _FORWARD, end=end_of_keys(emitter), kept=emitter.kept(), saved=saved,
        scores=emitter.dot(query, f"tl.trans({key})"),
        result=emitter.dot(weight, value, "result * rescale[:, None]"),
        stored=emitter.stored("out", "i", "e", "result"),
    )  # fmt: skip


def end_of_keys(emitter: AttentionEmitter) -> str:
    """The end of a loop over keys: with a causal mask, that of the tile's last query."""
    end = emitter.bound(emitter.spec.keys, emitter.tile.keys)
    return f"tl.minimum(first + ROWS, {end})" if emitter.spec.is_causal else end
