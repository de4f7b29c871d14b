"""The public path of MirrorMaker 2's MirrorClient in Python. Runs anywhere."""

from heliograph.compat.mirror_client import *  # noqa: F403
from heliograph.compat.mirror_client import __all__ as __all__
