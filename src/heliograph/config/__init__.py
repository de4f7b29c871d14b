"""The configuration: schema, loading, MirrorMaker 2 properties, secrets. Runs on the driver."""
