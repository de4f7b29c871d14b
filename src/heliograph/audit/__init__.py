"""Prove that both sides hold the same records: compare lanes by the exact map. Runs anywhere."""
