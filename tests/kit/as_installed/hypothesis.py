"""Stands before the real hypothesis on the path of processes that tests start.

kio imports hypothesis wherever it finds it, which is a quarter of a second of CPU in every driver,
command and Python worker; where Heliograph is installed it is not there.
"""

raise ImportError("not where Heliograph is installed")
