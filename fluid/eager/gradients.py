"""`grad`: gradients of variables by others, which can be differentiated again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fluid.eager import traces
from fluid.eager.nodes import GradRequest, TraceRecord
from fluid.eager.programs import next_order
from fluid.eager.variables import VarBase, gradient_of, reached_nodes, release, steps_to

__all__ = ["grad"]


def grad(
    outputs: VarBase | Sequence[VarBase],
    inputs: VarBase | Sequence[VarBase],
    grad_outputs: VarBase | Sequence[VarBase | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: VarBase | Sequence[VarBase] | None = None,
    backward_strategy: object = None,
) -> list[VarBase | None]:
    """Return the gradients of the sum of `outputs` by each of `inputs`.

    `grad_outputs` are the gradients of the outputs themselves, ones where None. With
    `create_graph`, the results have gradients too. The graph is released unless `retain_graph`
    (default: `create_graph`). An input that no output depends on raises RuntimeError, or with
    `allow_unused` has the result None.
    """
    assert only_inputs, "only_inputs=False is not supported yet"
    targets, sources = _listed(outputs, "outputs"), _listed(inputs, "inputs")
    assert targets and sources, f"grad needs outputs and inputs, not {len(targets)}, {len(sources)}"
    seeds = _seeds(grad_outputs, len(targets))
    steps = steps_to(targets)
    used = _used(targets, sources, steps, allow_unused)
    gradients = [gradient_of(source) for source in used]
    pairs = zip(targets, seeds, strict=True)
    request = GradRequest(
        [(target.node, None if seed is None else seed.node) for target, seed in pairs],
        steps,
        [source.node for source in used],
        [gradient.node for gradient in gradients],
        [source.node for source in used],
        [var.node for var in _listed(no_grad_vars, "no_grad_vars")],
    )
    if create_graph:
        for gradient in gradients:
            gradient.node.stops_gradient = gradient.stop_gradient = False
    with traces.LOCK:
        trace = traces.current()
        position = trace.request(request)
        if create_graph:
            _remember(trace, position, request, gradients, [s for s in seeds if s is not None])
    if not (create_graph if retain_graph is None else retain_graph):
        release(targets, steps)
    by_source = {id(source): gradient for source, gradient in zip(used, gradients, strict=True)}
    return [by_source.get(id(source)) for source in sources]


def _used(
    targets: Sequence[VarBase],
    sources: Sequence[VarBase],
    steps: Sequence[TraceRecord],
    allow_unused: bool,
) -> list[VarBase]:
    """Return the sources that a target depends on; RuntimeError unless all, or `allow_unused`."""
    reached = reached_nodes(targets, steps)
    used = [source for source in sources if id(source.node) in reached]
    if len(used) < len(sources) and not allow_unused:
        unused = next(source for source in sources if id(source.node) not in reached)
        raise RuntimeError(
            f"the input {unused.name!r} does not appear in the backward graph: no output depends "
            "on it, or it stops gradients. Set allow_unused=True to get None for it"
        )
    return used


def _remember(
    trace: traces.Trace,
    position: int,
    request: GradRequest,
    gradients: Sequence[VarBase],
    seeds: Sequence[VarBase],
) -> None:
    """Record a request as an op that can be differentiated: it reads all that led to it."""
    inputs = {id(node): node for step in request.steps for node in (*step.inputs, *step.outputs)}
    inputs |= {id(seed.node): seed.node for seed in seeds}
    producers = [*request.steps, *(seed.record for seed in seeds if seed.record is not None)]
    outputs = [gradient.node for gradient in gradients]
    record = TraceRecord(request, list(inputs.values()), outputs, producers, next_order(), None)
    record.trace, record.position = trace, position
    for gradient in gradients:
        gradient.record = record


def _listed(value: object, argument: str) -> list[VarBase]:
    items: list[object] = [] if value is None else _items(value)
    for item in items:
        if not isinstance(item, VarBase):
            kind = type(item).__name__
            raise AssertionError(f"elements of {argument} must be variables, but received {kind}")
    return cast(list[VarBase], items)


def _seeds(value: object, number: int) -> list[VarBase | None]:
    if value is None:
        return [None] * number
    seeds = cast("list[VarBase | None]", _items(value))
    assert len(seeds) == number, (
        f"{len(seeds)} grad_outputs are given for {number} outputs: their numbers must be equal"
    )
    return seeds


def _items(value: object) -> list[object]:
    return [*value] if isinstance(value, list | tuple) else [value]
