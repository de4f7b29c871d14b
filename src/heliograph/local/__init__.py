"""Real Kafka clusters on this machine, and the demo. Runs on the driver."""
