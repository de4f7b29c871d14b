"""The driver: one process that keeps the slots carrying what the configuration says.

Begin at `run.run_mirror`, one asyncio application and the library call `heliograph.run`. In it,
`reconcile` looks at clusters, decides lanes, makes targets ready and hands lanes to slots;
`periodic` runs the jobs that `jobs` lists. May import every feature; only `api` and `cli` stand
above it.
"""
