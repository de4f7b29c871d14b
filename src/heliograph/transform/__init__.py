"""What looks into records: transforms of a lane, each record none or one in the same lane.

Begin at `lane.LaneTransform`, which a slot asks for each chunk; `steps` has what a transform may
be. Runs on executors, and on the driver where somebody wants to see what a transform does; does no
I/O but the import of the operator's modules. May import `topics` and below.
"""
