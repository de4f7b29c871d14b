"""Failback: bring clients home after a failover, nothing lost and nothing twice.

Begin at `command`: preview, run or resume, abandon. Then `outputs`, the steps by name and what
each records; `divergence`, what becomes of a topic whose logs differ; `steps`, what is done in
which order. Each step has its module: `find` and `lane` compare both logs, `export` saves what only
the old primary has, `reverse_ledger` writes the map reversed, `groups` moves the groups. `context`
is what steps share. `procedure` runs and resumes the steps. May import `failover` and below.
"""
