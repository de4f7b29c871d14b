"""Strimzi's `KafkaMirrorMaker2` resource as settings of an `mm2.properties`; begin at `resource`.

May import `config.mm2` and what stands below it. Runs on the driver.
"""
