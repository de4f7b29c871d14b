"""Failover, failback, drill: leaving a cluster and coming back to it."""
