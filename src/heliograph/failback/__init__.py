"""Failback: the old primary becomes the standby again, what it alone had is found and kept.

`command` is the way in, `steps` what it does in which order, `find` and `lane` where both histories
diverge, `reverse_ledger` the map told from the other side. May import `failover` and below.
"""
