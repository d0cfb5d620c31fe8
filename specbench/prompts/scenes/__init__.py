"""The drawn world that mini is trained on and judged in."""
