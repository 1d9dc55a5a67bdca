"""Average the clients' changes along the directions that most of them share.

The parts are ``principal-gradient`` and ``margin-log-loss``.
"""

from normkit.federated import servers
from normkit.federated.rounds import Strategy

PLAN = Strategy(servers.principal, ("principal-gradient", "margin-log-loss"), takes=("share",), remembers=True)
