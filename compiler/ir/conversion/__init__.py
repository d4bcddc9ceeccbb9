"""Conversion between programs and graphs, including control flow and its gradients.

Read in this order:

1. `program_to_graph`: the entry point `to_graph`; `graph_to_program`: the way back;
2. rewrites of the program before conversion: `block_owners` (checks), `reused_names`
   (undo of `memory_optimize`), `overwritten_values` (values saved for gradients);
3. `block_walk` with `current_vars`, `companions` (LoD and sparse gradients), `coalesced_memory` and
   `walk_rules`: one block and the blocks inside it;
4. `carried_lod`: LoD that a loop changes;
5. `control_flow`, `control_flow_grad`, `recurrent`: the ops that own blocks;
6. `composite_graph`, `remote_lookups`: ops that are converted to other ops.
"""
