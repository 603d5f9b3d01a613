"""Benchmarks: each prints JSON and compares with something measured in the same run."""
