"""A campaign: seeded random operations against real clusters and a real mirror, and what must hold.

    python -m tests.campaign --seed 7 --ops 50               one-node clusters, two drivers
    python -m tests.campaign --seed 7 --ops 200 --brokers 3  as in bench/results/soak
    python -m tests.campaign --replay JOURNAL --prefix 31    what a journal has, its first 31

`plan` is a pure function of the seed. `world` has two clusters behind proxies, clients that write
and know what they wrote, and drivers; `operations` is what is done to them; `quiet` heals all,
waits until everything is caught up with and hands each lane to `checks`. `journal` has each line.
Begin with `play`.
"""
