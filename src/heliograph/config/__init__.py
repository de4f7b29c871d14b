"""The configuration: what a file says, checked, as values everything else reads.

`load.load_config` is the way in, `schema.MirrorConfig` what comes out; `mm2/` reads MirrorMaker 2's
properties, `tls/` Java's security settings, `clients` turns them into client settings. May import
`model` and below; no broker is asked here.
"""
