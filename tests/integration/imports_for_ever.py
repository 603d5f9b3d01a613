"""A module of handlers that is never done with being imported."""

import time

time.sleep(600)
