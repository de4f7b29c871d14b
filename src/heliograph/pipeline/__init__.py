"""Pipelines: what a lane cannot do is a DataFrame, read from a cluster and written to one, exactly
once.

Begin at `source.HeliographSource` (`spark.read.format("heliograph")`) for reading, at
`sink.exactly_once` and `writer` (`df.write.format("heliograph")`) for writing. Between the two is
the user's own code. What is written is first staged as sealed record batches (`staging`), then
claimed in a ledger of the pipeline's own on the target (`notes`), then appended by
compare-and-append (`append`). May import `audit` and below; `source`, `sink`, `writer` and
`columns` know Spark, and `query` and `sample`, which run the pipelines of a file.
"""
