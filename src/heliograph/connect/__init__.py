"""Kafka Connect's connectors as a way to say what is mirrored. Runs on the driver.

Begin at `translate`, which turns the three MirrorMaker 2 connectors into the same configuration
that a file gives, and `worker`, which keeps them in Connect's own topic and runs them. `plugins`
has what each connector is told, `states` what Connect says about it, `of_file` shows the flows of a
file as connectors. May import `driver` and below; `api` speaks its dialect over HTTP.
"""
