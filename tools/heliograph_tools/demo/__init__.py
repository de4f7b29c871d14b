"""`make demo`: two clusters, a live mirror, a moved group, every record compared.

Begin at `story`.
"""
