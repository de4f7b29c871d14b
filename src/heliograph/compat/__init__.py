"""What MirrorMaker 2 does besides records: heartbeats, syncs, checkpoints, topic configs, ACLs.

Each is a periodic job of one flow with its decisions beside it, byte-compatible with MirrorMaker 2;
`mirror_client` asks the same topics. Begin at `driver.jobs`, which lists the jobs. May import
`groups` and below.
"""
