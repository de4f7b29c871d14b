"""What takes longer than `make test` may: `make soak` runs it."""
