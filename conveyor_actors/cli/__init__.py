"""The `conveyor` command."""
