"""Text to text: rules over characters and words, numbers written out, names brought to one form."""
