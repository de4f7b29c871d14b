"""What operators decide about lanes: pause, throttle, pin and the like, kept in the flow's ledger.

`decision` has the values, `orders` what they amount to for each lane (no I/O, used by driver,
status, plan and API alike), `record` how the ledger keeps them, `decide` makes and withdraws them.
Begin at `orders`. May import `ledger` and what stands below it.
"""
