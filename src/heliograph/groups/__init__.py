"""Consumer groups: where they stand, where they go on at the target, how they are moved.

Begin at `snapshot`, which reads; `placement` plans (no I/O), `commit` moves and reads back,
`follower` and `sync` do it again and again beside a mirror. Nothing else moves a group. May import
`ledger` and below.
"""
