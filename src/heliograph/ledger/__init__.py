"""The ledger: the topic on the target that keeps a flow's offset map, lease, fence and notes.

Begin at `entries`, what is written, `runs` and `view` what they amount to, `translate` and
`locate` answer what an offset becomes and where a lane stands, `store` reads and appends, `access`
opens it for the driver and for commands (`service` for their threads), `lease` says who leads a
flow, `trail` what somebody has changed. May import `topics` and below.
"""
