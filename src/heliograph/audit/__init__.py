"""The audit: both sides of a flow compared by the exact map, and repaired on request.

`plan` cuts lanes into units, `job` compares them in Spark tasks (`compare`, which needs no Spark
and serves planned failover and failback too), `run` gathers and notes how far it came, `loop`
repeats it beside a mirror, `repair` appends what is missing. Begin at `run`. May import `procedure`
and below.
"""
