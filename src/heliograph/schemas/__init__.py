"""Schemas that go along with a flow, from the registry of its source to that of its target.

Begin at `copying.SchemaCopier`: `look` says what is missing, `copy` registers it. `job` does so
while a mirror runs, `heliograph schemas` once. Runs on the driver. May import `groups` and
below.
"""
