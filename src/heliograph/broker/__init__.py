"""Sockets: connections, metadata, fetch, append, admin. Runs on driver and executors."""
