"""Records that could not be mirrored, kept whole in a topic on the target, and their way back.

Begin at `letter` for what a letter is, `lane` for how a lane writes one exactly once, `replay` for
how records are put behind a target partition later. May import `ledger` and below.
"""
