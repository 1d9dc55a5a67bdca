"""What is claimed of a choice among 8 particles with a flow's samples."""

from normkit.claims.density._modes import choose, of_proposals

CLAIMS = of_proposals(choose)
