"""How many slots are of use, and how far from its limit a flow is at its peak.

Begin at `command.tune_flow`. `load` copies a scratch topic with the ordinary engine, as a flow of
its own that nobody else has, once for each number of slots; `peak` reads the busiest hour from the
timestamps in the logs; `knee` and `advice` say what follows. May import `driver` and below.
"""
