"""Looks for what is wrong, or will be, with the clusters, the network and the machines of a mirror.

Begin at `examine.examine`, which gathers facts (`asking`, `place`, `executors`) and hands them to
the checks; a check is a function without I/O in a module of its subject, from facts to findings.
May import `audit` and what stands below it.
"""
