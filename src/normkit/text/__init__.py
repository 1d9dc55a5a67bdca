"""From what people wrote to what they meant: normal form = decide(rescore(candidates(rewrite(text))))."""
