"""The gradient kernels of attention: weights are computed again from what forward saved of rows.

With weights w, gradients by weights g = factor * d_out @ vᵀ and their means, Σ over keys of w * g,
which are Σ of out * d_out, the gradients by scores are w * (g - means). One kernel computes those
by queries, and the means, for a block of queries; the next those by keys and values, for a block of
keys. If a matrix is one tile, one program computes all. (T. Dao et al., "FlashAttention", 2022,
where one number, log(Σ exp), is saved for each row. Here these are two, the maximum and the sum:
the maximum may be so low, as that of a row whose keys are all masked, that the sum would be
rounded away.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.triton.attention.emitter import AttentionEmitter, Template
from compiler.codegen.triton.attention.forward import end_of_keys
from compiler.codegen.triton.attention.tiles import (
    key_gradient_tile,
    query_gradient_tile,
    single_tile,
)
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.writer import Names

_BY_QUERIES = Template(
    Template.lines("""
tile = tl.program_id(0).to(INDEX)
blocks = tl.cdiv({queries}, ROWS)
matrix = tile // blocks
first = tile % blocks * ROWS
i = first + tl.arange(0, ROWS)
d = tl.arange(0, WIDTH)
e = tl.arange(0, COLUMNS)
query = {q}
upstream = {upstream}
most = {most}
inverse = 1.0 / {total}
mean = tl.sum({out}.to(tl.float32) * upstream.to(tl.float32), 1) * inverse
tl.store({means}, mean{live})
inverse = inverse * {factor}
by_query = tl.zeros((ROWS, WIDTH), tl.float32)
for start in range(0, {end}, KEYS):
"""),
    Template.lines("""
j = start + tl.arange(0, KEYS)
key = {k}
value = {v}
score = tl.dot({f_query}, tl.trans({f_key}), out_dtype=tl.float32) * {scale}
{masked}
power = tl.exp2(score - most[:, None])
slope = tl.dot({f_upstream}, tl.trans({f_value}), out_dtype=tl.float32)
{kept}
slope = power * ({slope} * inverse[:, None] - mean[:, None])
by_query = tl.dot({by_score}, {f_key}, by_query, out_dtype=tl.float32)
"""),
    ["{d_q}"],
    ("means", "d_q"),
    ("width", "width", "columns"),
)

_SCORES_BY_KEYS = """
score = tl.dot({f_key}, tl.trans({f_query}), out_dtype=tl.float32) * {scale}
{masked}
power = tl.exp2(score - most[None, :])
{kept}
weight = {weight}
by_value = tl.dot({dropped}, {f_upstream}, by_value, out_dtype=tl.float32)
slope = tl.dot({f_value}, tl.trans({f_upstream}), out_dtype=tl.float32)
slope = power * ({slope} * inverse[None, :] - mean[None, :])
slope = {by_score}
by_key = tl.dot({f_slope}, {f_query}, by_key, out_dtype=tl.float32)
"""

_BY_KEYS = Template(
    Template.lines("""
tile = tl.program_id(0).to(INDEX)
blocks = tl.cdiv({keys}, KEYS)
matrix = tile // blocks
first = tile % blocks * KEYS
j = first + tl.arange(0, KEYS)
d = tl.arange(0, WIDTH)
e = tl.arange(0, COLUMNS)
key = {k}
value = {v}
by_key = tl.zeros((KEYS, WIDTH), tl.float32)
by_value = tl.zeros((KEYS, COLUMNS), tl.float32)
for start in range({begin}, {end}, ROWS):
"""),
    Template.lines("""
i = start + tl.arange(0, ROWS)
query = {q}
upstream = {upstream}
most = {most}
inverse = {factor} / {total}
mean = {mean}
""")
    + Template.lines(_SCORES_BY_KEYS),
    ["{d_k}", "{d_v}"],
    ("d_k", "d_v"),
    ("width", "width", "columns", "columns"),
)

_ALL = Template(
    Template.lines("""
matrix = tl.program_id(0).to(INDEX)
i = tl.arange(0, ROWS)
j = tl.arange(0, KEYS)
d = tl.arange(0, WIDTH)
e = tl.arange(0, COLUMNS)
key = {k}
value = {v}
query = {q}
upstream = {upstream}
most = {most}
inverse = 1.0 / {total}
mean = tl.sum({out}.to(tl.float32) * upstream.to(tl.float32), 1) * inverse
inverse = inverse * {factor}
by_key = tl.zeros((KEYS, WIDTH), tl.float32)
by_value = tl.zeros((KEYS, COLUMNS), tl.float32)
""")
    + Template.lines(_SCORES_BY_KEYS)
    + Template.lines("""
by_query = tl.dot(tl.trans({f_slope}), {f_key}, out_dtype=tl.float32)
{d_q}
"""),
    [],
    ["{d_k}", "{d_v}"],
    ("d_q", "d_k", "d_v"),
    ("width", "width", "width", "columns", "columns"),
)


def reads_means(spec: Attention, gpu: str) -> bool:
    """Whether the gradients are two kernels, of which the second reads means of the first."""
    return single_tile(spec, gpu) is None


def emit_gradients(
    spec: Attention, operands: Mapping[str, NumpyOperand], name: str, names: Names, gpu: str,
    comment: Sequence[str] = (),
) -> Iterator[KernelSource]:  # fmt: skip
    """Emit the kernels of the gradients of an attention in half precision, with tiles for a GPU.

    `operands` are those of `k.attention_gradient`, and "means", float32 [stack…, queries], if
    `reads_means`.
    """
    tile = single_tile(spec, gpu)
    if tile is not None:
        used = _used(operands, "means")
        yield _emit(AttentionEmitter(spec, used, names.make(name), comment, tile, "i"), _ALL)
        return
    used = _used(operands, "d_k", "d_v")
    tile = query_gradient_tile(spec, gpu)
    by_queries = AttentionEmitter(spec, used, names.make(f"{name}_q"), comment, tile, "j")
    yield _emit(by_queries, _BY_QUERIES, end=end_of_keys(by_queries))
    used, tile = _used(operands, "d_q", "out"), key_gradient_tile(spec, gpu)
    by_keys = AttentionEmitter(spec, used, names.make(f"{name}_kv"), comment, tile, "i")
    begin = "first // ROWS * ROWS" if spec.is_causal else "0"
    end = by_keys.bound(spec.queries, tile.rows)
    yield _emit(by_keys, _BY_KEYS, begin=begin, end=end)


def _used(operands: Mapping[str, NumpyOperand], *unused: str) -> dict[str, NumpyOperand]:
    return {name: operand for name, operand in operands.items() if name not in unused}


def _emit(emitter: AttentionEmitter, template: Template, **bounds: str) -> KernelSource:
    """Emit a kernel from a template of gradients."""
    looped, scale = emitter.looped, repr(emitter.spec.scale)
    row = "[:, None]" if looped == "j" else "[None, :]"
    texts = {
        "upstream": emitter.loaded("d_out", "i", "e"), "most": emitter.per_query("statistics"),
        "total": emitter.per_query("statistics", 1, other=1.0), "kept": emitter.kept(),
        "slope": emitter.unless_dropped("slope"), "f_slope": emitter.factor("slope"),
        "weight": f"power * inverse{row}",
        "dropped": emitter.factor(emitter.rounded(emitter.unless_dropped("weight"))),
        "by_score": emitter.rounded("slope"),
    }  # fmt: skip
    if template is _BY_QUERIES:
        texts["by_score"] = emitter.factor(texts["by_score"])
    if "out" in emitter.operands:
        texts["out"] = emitter.loaded("out", "i", "e")
    if "means" in emitter.operands:
        texts |= {"means": emitter.of_query("means"), "mean": emitter.per_query("means")}
        texts["live"] = emitter.guard(i="")
    stores = {
        "d_q": ("i", "d", f"by_query * {scale}"), "d_k": ("j", "d", f"by_key * {scale}"),
        "d_v": ("j", "e", "by_value"),
    }  # fmt: skip
    texts |= {
        name: emitter.stored(name, *place)
        for name, place in stores.items()
        if name in emitter.operands
    }
    return emitter.emit(template, **texts, **bounds)
