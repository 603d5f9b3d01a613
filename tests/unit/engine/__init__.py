"""The engine by itself: no process, no socket, a store of its own."""
