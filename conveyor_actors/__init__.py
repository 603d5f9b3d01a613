"""Crash-resilient, CPU-bound batch jobs."""

__version__ = "0.1.0"
