"""Op definitions: one class per op declares slots, attributes, types, bodies and gradient.

Op files import what they need from here. Read in this order:

1. `slots`, `attribute_bounds`: how slots and attributes are declared; `slot_values`: the object
   with which methods read the values in slots;
2. `definition`: the classes that an op derives from, and the registry; `bodies`: how methods of an
   op class are called by slot; `broadcasting`, `half_precision`: helpers of those classes;
3. `kernel_builder`: the interfaces that lowerings of host and device code use;
4. `type_inference`: checks and shape inference when an op is appended to a program;
5. what an op may declare besides: `layout_rules` (permuted operands), `global_reductions`;
6. `composite`, `composite_steps`: ops that expand into other ops.
"""

from compiler.ir.opdef import definition
from compiler.ir.opdef.definition import *

__all__: list[str] = []
__all__ += definition.__all__
