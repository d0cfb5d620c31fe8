"""``python -m specbench``: the command by another name.

Knows: where the command begins. Refuses to know: anything else.
"""

from specbench.cli.main import main

if __name__ == "__main__":
    main()
