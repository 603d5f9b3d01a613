"""The producer API: `Conveyor`, `Queue`, `Job`, events, and a `Supervisor` of one's own."""
