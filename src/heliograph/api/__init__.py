"""The driver's REST server: `/v1`, roles, errors, operations. Runs on the driver.

Begin at `server`, which serves a running mirror, and `app`, which puts the routes together:
`reading` (the mirror as it runs), `remembered` (what ledgers and clusters have), `recovery`.
`connect*` speak Kafka Connect's dialect, `worker_server` serves `heliograph connect`.
`state` is what routes share and who calls them, `guard` what a request passes before. What is read
comes from `driver.run:LiveMirror`. May import `driver` and below; nothing but `cli` imports it.
"""
