"""A disk on which files can be written up to a size."""

import resource
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def files_of_at_most(nbytes: int) -> Generator[None]:
    """Writing beyond `nbytes` of a file raises OSError (EFBIG) within the block."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
