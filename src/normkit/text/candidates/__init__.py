"""Text to ids with scores: from a vocabulary of names, or several sources joined."""
