"""Spark: the session, slots as long-running tasks, the link to them, batch jobs over units.

Beside `pipeline` the only package that imports pyspark. Begin at `application.SparkApplication`,
at `slots.Slots` (a slot's other end is `task`) or at `unit_job.run_units`. May import `copy` and
below.
"""
