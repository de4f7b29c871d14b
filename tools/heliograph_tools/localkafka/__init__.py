"""Real Kafka clusters on this machine, for the demo, the benchmarks and the tests.

Begin at `cluster.local_clusters`.
"""
