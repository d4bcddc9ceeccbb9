"""Collective communication ops; each calls a method of the object `collective`.

`base` has the shared base classes, `single_rank` the `collective` of one rank, which the
interpreter uses. `reduce`, `data_movement`, `rings`, `streams` and `sync_batch_norm` are the ops of
programs, `buckets` those that the pass `bucket_all_reduces` creates.
"""
