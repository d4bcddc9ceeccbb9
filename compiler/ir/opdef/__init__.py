"""Op definitions: one class per op declares slots, attributes, types, bodies and gradient.

Op files import what they need from here. Read in this order:

1. `slots`, `attribute_bounds`: how slots and attributes are declared;
2. `definition`: the classes that an op derives from, and the registry; `bodies`: how methods of an
   op class are called by slot; `broadcasting`, `half_precision`: helpers of those classes;
3. `kernel_builder`: the interfaces that lowerings of host and device code use;
4. `type_inference`: checks and shape inference when an op is appended to a program;
5. what an op may declare besides: `traits`, `memory_rules` (aliasing, in-place outputs),
   `layout_rules` (permuted operands), `global_reductions`;
6. `composite`, `composite_steps`: ops that expand into other ops.
"""

from compiler.ir.opdef.definition import (
    BOOKKEEPING,
    Attr,
    GradOp,
    HostOp,
    OpDef,
    Pointwise,
    PointwiseGrad,
    RecomputeRule,
    Rowwise,
    RowwiseGrad,
    Share,
    Slot,
    Types,
    Value,
    Xp,
    attr,
    attr_list,
    broadcast,
    call,
    check_attributes,
    find,
    fit,
    has,
    is_registered,
    listed,
    loaded,
    parameters,
    reads,
    reads_lod,
    reads_previous,
    reads_rows,
    reads_token,
    reduced_axes,
    registered,
    required,
    required_list,
    slot_of,
    type_of,
    writes,
    writes_lod,
    writes_rows,
    writes_token,
)

__all__ = [
    "Attr", "BOOKKEEPING", "GradOp", "HostOp", "OpDef", "Pointwise", "PointwiseGrad",
    "RecomputeRule",
    "Rowwise",
    "RowwiseGrad", "Share", "Slot", "Types", "Value", "Xp", "attr", "attr_list",
    "broadcast",
    "call", "check_attributes", "find", "fit", "has", "is_registered", "listed", "loaded",
    "parameters",
    "reads", "reads_lod", "reads_token", "reads_previous", "reads_rows", "reduced_axes",
    "registered", "required", "required_list", "slot_of", "type_of", "writes", "writes_lod",
    "writes_token", "writes_rows",
]  # fmt: skip
