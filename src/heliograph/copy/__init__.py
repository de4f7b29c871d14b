"""The copying of one slot: lanes resumed, fetched, laid out, appended, settled.

Begin at `shuttle.Shuttle`. Runs on executors inside a Spark task, and needs no Spark. May import
`ledger` and below.
"""
