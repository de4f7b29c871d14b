"""Consumer groups: where they stand, where they go on at the target, how they are moved.

`reading` reads groups of one cluster, for every command and loop. Begin at `snapshot`, which puts
both clusters and the ledger together; `placement` plans (no I/O), `commit` moves and reads back,
`follower` and `sync` do it again and again beside a mirror. Nothing else moves a group. May import
`ledger` and below.
"""
