"""The command line: one thin file per command.

Knows: arguments, exit codes, where output goes.
Refuses to know: how anything is computed. No file here imports torch, Hydra or a sibling room at the top: what is heavy
is imported inside the command that needs it, so ``specbench --help`` stays instant.
"""
