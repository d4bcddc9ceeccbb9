"""Ops that communicate between ranks; each calls a method of the object `collective`.

`base` has what they share, `alone` the `collective` of one rank, which the interpreter uses. Then
`reduce`, `move`, `rings`, `streams` are the ops of programs, `buckets` those that the pass
`bucket_all_reduces` makes.
"""
