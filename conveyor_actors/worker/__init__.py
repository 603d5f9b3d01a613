"""The process that runs handlers: one job at a time."""
