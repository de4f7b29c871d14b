"""Taking flows over from MirrorMaker 2 at exactly the next record, and handing them back.

`adopt` and `release` are the ways in, `pending` tells the driver which lanes must be adopted first,
`alignment` finds where both logs match. May import `compat` and below.
"""
