"""What is claimed of a step of Metropolis and Hastings with a flow's samples."""

from normkit.claims.density._modes import jump, of_proposals

CLAIMS = of_proposals(jump)
