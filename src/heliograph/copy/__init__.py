"""The copying of one slot: lanes resumed, fetched, prepared, appended, settled.

Begin at `shuttle.Shuttle`, what the driver may ask, and `machine.LaneMachine`, what becomes of a
lane. Runs on executors inside a Spark task, and needs no Spark. May import `ledger` and below.
"""
