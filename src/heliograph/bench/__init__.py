"""Heliograph measured against MirrorMaker 2 and the floor, in one run. Runs on the driver."""
