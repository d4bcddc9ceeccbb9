"""The intermediate representation: types, programs, dataflow graphs, and what is derived from them.

Read in this order:

1. `dims` (symbolic sizes), `types` (element and tensor types), `region` (bytes of a buffer);
2. `program` (blocks of ops, as `fluid` records them) and `graph` (SSA dataflow graph of ops and
   vars, on `digraph`);
3. `opdef`: how an op class declares slots, attributes, types, kernels and gradient;
4. `conversion`: program to graph and back, control flow included;
5. `autodiff`: `append_backward` on programs, double grad;
6. `analysis`: liveness, placement, allocation facts, the verifier;
7. `text` (the `.ir` format) and `model_format` (`__model__` files of Paddle 1.x).

`philox` is the counter-based random number generator, `cached_property` a lock-free property.
"""
