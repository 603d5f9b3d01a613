"""What happens to a job: deterministic, and free of clocks, randomness, sockets and threads."""
