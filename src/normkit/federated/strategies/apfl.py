"""Average the global models, all alike; each client mixes one with a model of its own.

The parts are ``apfl-step`` and ``apfl-alpha``.
"""

from normkit.federated.rounds import Strategy, alike

PLAN = Strategy(alike, ("apfl-step", "apfl-alpha"), own=True)
