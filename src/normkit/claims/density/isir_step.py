"""What is claimed of a choice among 8 particles with a flow's samples."""

from normkit.claims.density._modes import chosen, of_proposals

CLAIMS = of_proposals(chosen)
