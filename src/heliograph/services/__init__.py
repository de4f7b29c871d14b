"""Slow loops of the driver: provisioning and steering."""
