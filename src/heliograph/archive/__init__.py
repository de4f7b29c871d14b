"""Topics in Parquet files, and back: offsets, headers and timestamps kept.

Begin at `write.archive_topic`. An archive is a folder of files, each a stretch of one partition,
and a book of commits (`book`) that says how far each partition is; it goes on at another cluster by
the flow's offset map (`moving`). `restore` puts a topic back, each record once. May import
`pipeline` and below; only `write` and `restore` run jobs.
"""
