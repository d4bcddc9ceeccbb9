"""Program files under the name of release 1.8."""

from fleet import program_files
from fleet.program_files import *  # noqa: F403
from fleet.saved_model_check import check_saved_vars_try_dump

__all__ = ["check_saved_vars_try_dump"]
__all__ += program_files.__all__
