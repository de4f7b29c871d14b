"""Looking without touching: status, lag, groups, topology, the dry run of a mirror; and reset.

Begin at `status.StatusReader`. Reads clusters and ledgers, needs no running driver. May import
`compat` and below.
"""
