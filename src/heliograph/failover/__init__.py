"""Failover: groups go on at the standby exactly; what never arrived is listed.

Begin at `command`: preview, run or resume, abandon. Then `outputs`, the steps by name and what
each records; `steps`, those that every failover has; `planned`, those that a planned one has
besides; `quiesce`, how the flow is brought to rest; `source_ends` and `shortfall`, what never
arrived. `context` is what steps share. `procedure` runs and resumes the steps, `groups` moves the
groups, `cli.failover` is the command line. May import `audit`, `procedure`, `groups` and below.
"""
