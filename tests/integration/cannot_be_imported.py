"""A module of handlers with a mistake in it."""

import there_is_no_such_module  # noqa: F401
