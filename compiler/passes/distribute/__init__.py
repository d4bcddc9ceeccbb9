"""Passes for programs that run on several ranks.

`bucket_all_reduces` is the pass; `buckets` chooses which gradients go together, `overlap` an order
in which communication starts early and is waited for late.
"""
