"""Bytes only: batch headers, records, hot frames. Pure functions; runs anywhere."""
