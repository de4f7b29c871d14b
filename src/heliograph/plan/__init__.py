"""Pure decisions: topics, naming, provisioning, assignment. Runs on the driver."""
