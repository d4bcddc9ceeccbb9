"""Parts of `fluid.Executor`: feeds, fetches, flags, and programs compiled before."""
