"""Taking flows over from MirrorMaker 2 at exactly the next record, and handing them back.

Begin at `adopt` and `release`; `pending` tells the driver which lanes must be adopted first,
`alignment` finds where both logs match. May import `compat` and below.
"""
