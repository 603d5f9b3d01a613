"""The real engine on the real store, with simulated time, workers, clients and crashes, all from one seed."""
