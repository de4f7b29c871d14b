"""Procedures that survive their own death: steps noted in the ledger as they are done, and hooks.

Begin at `steps.run_steps`; failover and failback are lists of such steps. May import `inspect` and
below.
"""
