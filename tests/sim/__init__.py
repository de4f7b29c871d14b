"""The copying code against two clusters in memory, with a clock and a schedule of its own.

What runs is the real thing: `copy.shuttle` with all below it, the ledger's store and writer,
`broker.cluster`, the driver's `decide_starts`. Replaced is only what it waits for: the event loop
(`loop`: time is a number, a process can be killed or frozen between any two callbacks), the
network (`net`: every request and every answer moves when the schedule says so, a connection may end
before or after what it carried took effect) and the brokers (`tests.kit.fake_brokers`, `fake_log`:
leaders and epochs, high watermark against log end, sequences and the last five batches, producers
that are forgotten, transactions, fetch sessions, retention, compaction; what they claim of brokers
is played against real ones by `tests/cluster/test_fake_cluster.py` and, where that takes two of
them or one that soon forgets, `tests/soak/test_fake_brokers.py`; not so unclean elections).

A step is one thing that happens: a request arrives, an answer arrives, followers catch up, time
passes, a client writes, a slot dies (`actions`). Each episode draws which kinds happen in it. After
each step the batches that were appended are judged (`world`): every record is the next one that the
source has committed, nothing left out but what the ledger notes as lost, nothing again, none of an
aborted or open transaction, nothing above the high watermark; and whoever read the whole ledger
at that moment would know its source offset (runs before batches). Whenever time passes, a lane that
says that it copies must get somewhere (`checks.Watch`). Now and then everything is made well
(`calm`): then every lane comes to rest, its copy is whole or it says why not, and the map
translates every record exactly in both directions.

    python -m tests.sim --seed 7 --steps 1000000     episodes 7/0, 7/1, … of 3,000 steps
    python -m tests.sim --episode 7/12               one of them, as it was
    python -m tests.sim --episode 7/12 --prefix 900  its first steps only, then all is made well
    python -m tests.sim --episode 7/12 --shrink 60   the shortest schedule that fails so, and how
    python -m tests.sim --schedule failure.json      a schedule that was kept
    python -m tests.sim --mutations bench/results/sim/mutations.json

The same seed gives the same steps in every process (`digest` in the runner's last line, beside
steps/s). `make test` runs `test_sim.py` for less than a minute from fixed seeds, `make soak` longer
with `SEED`. `bench/results/sim` has what it misses of the rules of the copying code.

What is left out, since the product does not promise it or is known not to hold it
(`actions.UNPROMISED`; `--unpromised` plays it all the same):
- a source that is compacted while two slots carry one lane, or before a batch of a dead slot
  arrives: the two lay out other records at the same positions, and runs that come late send the map
  to other offsets (a repeat, a loss, or a stall that names a cut of the source that was none);
- others that write into a mirrored topic while a batch of the lane is above its high watermark: a
  resume that meets as many records of theirs below it takes those for the batch, and the map names
  their offsets until the lane resumes again;
- others that write as many records as an unclean election of the target took;
- a source that lost what was copied in the moments before a slot died, where one side has deleted
  the record since: nothing is left to compare;
- a frozen or second slot while the source topic is created again, which no driver does.

What the source loses by an unclean election is judged as it was when it was read: records of a
transaction whose marker is lost with the rest, and what stands at the offsets of lost ones since.

An unclean election of the ledger is not played, nor brokers that lie, nor more than one flow,
transforms, dead letters or loop prevention.
"""
