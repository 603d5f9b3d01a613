"""A module of handlers whose workers die as soon as they are forked."""

import os

from conveyor_actors import handler


@handler("whereabouts")
def whereabouts(data):
    return None


os.register_at_fork(after_in_child=lambda: os._exit(7))
