"""Procedures that survive their own death: steps recorded in the ledger when done, and hooks.

Begin at `runner`: resume or begin, run what is left, abandon. `journal` has the records, typed by
step; `hooks` tell the world outside Kafka. Failover and failback are lists of such steps. May
import `inspect` and below.
"""
