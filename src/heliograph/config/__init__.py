"""The configuration: what a file says, checked, as values everything else reads.

`load.load_config` is the way in, `schema.MirrorConfig` what comes out. A key is declared once, on
the field it fills (`keys`), or in `mm2.inert` if it has no effect; `mm2/` reads MirrorMaker 2's
properties, `tls/` Java's security settings, `clients` turns them into client settings. May import
`model` and below; no broker is asked here.
"""
