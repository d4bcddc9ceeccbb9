"""The parts of `fluid.Executor`: feeds, fetches, flags, and the cache of compiled programs."""
