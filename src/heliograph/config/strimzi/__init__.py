"""Strimzi's `KafkaMirrorMaker2` resource, read as settings of an `mm2.properties`. Driver only.

Begin at `resource`. May import `config.mm2`, and what the other YAML format shares with it.
"""
