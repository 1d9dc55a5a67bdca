"""Send each client what the gradients and risks of the others are for it.

The parts are ``pgfed-client`` and ``pgfed-server``.
"""

from normkit.federated import servers
from normkit.federated.rounds import Extras, Strategy

PLAN = Strategy(
    servers.personal,
    ("pgfed-client", "pgfed-server"),
    wanted=Extras(more=("gradient",), signed=("risk", "alpha"), sound=servers.whole_gradient),
    needs=("parameters",),
    takes=("mu", "momentum"),
    remembers=True,
    told=servers.of_the_others,
)
