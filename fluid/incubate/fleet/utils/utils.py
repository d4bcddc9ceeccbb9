"""Program files under the name of release 1.8."""

from fleet import program_files
from fleet.program_files import *  # noqa: F403

__all__: list[str] = []
__all__ += program_files.__all__
