"""Schema registries: what they answer, and which schema of one is which of another.

Begin at `client.Registry`, which asks one; `pairing.Pairing` finds a schema of the source's at the
target's, `ids.IdMap` does so for a slot without holding it up (`asked`). Runs on driver and
executors. May
import `config` and below.
"""
