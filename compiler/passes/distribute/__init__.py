"""Passes for programs that run on several ranks.

Read `bucket_all_reduces` (the pass), then `buckets` (which gradients share a bucket) and `overlap`
(a schedule that starts communication early and waits for it late).
"""
