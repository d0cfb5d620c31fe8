"""Trained heads and how they are trained. None yet: every method so far drafts from the target's own earlier passes."""
