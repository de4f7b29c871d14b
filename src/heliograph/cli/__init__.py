"""The command line. Runs on the driver."""
