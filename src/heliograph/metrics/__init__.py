"""What a running mirror tells Prometheus, and any collector that speaks OTLP. Runs on the driver.

Begin at `gather`, which looks at a running mirror and keeps what was found for a second or longer;
`native` makes families of it under Heliograph's own names, `compat` under MirrorMaker 2's,
`definitions` lists every native name. `exposition` writes families as text, `push` sends them.
May import `driver` and below; the API serves it.
"""
