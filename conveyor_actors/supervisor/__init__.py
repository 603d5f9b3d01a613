"""The shell around the engine: processes, sockets, signals and time."""
