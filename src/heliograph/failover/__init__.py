"""Failover: groups go on at the standby exactly; what never arrived is listed.

`command` is the way in, `steps` and `planned` what it does in which order, `quiesce` stops the
flow, `shortfall` and `source_ends` say what is missing. May import `drill`'s neighbours below:
`audit`, `procedure`, `groups` and so on.
"""
