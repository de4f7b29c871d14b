"""What the target remembers: heads, runs and losses of each lane. Runs anywhere."""
