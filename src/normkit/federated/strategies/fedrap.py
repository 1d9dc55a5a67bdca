"""Average what is common, all clients alike; each keeps a personal part beside it.

The parts are ``fedrap`` and ``fedrap-loss``.
"""

from normkit.federated.rounds import Strategy, alike

PLAN = Strategy(alike, ("fedrap", "fedrap-loss"), keeps=True, own=True)
