"""Carries lanes inside a slot: fetch, lay out, append, settle. Runs on executors."""
