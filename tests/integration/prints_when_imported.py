"""A module of handlers that has something to say."""

print("imported", "x" * 10_000)  # noqa: T201
