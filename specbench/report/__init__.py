"""Tables, sentences, sheets and plots from what a run left behind.

Knows: the ``--json`` document (the contract in ``docs/cli.md``) and the pictures' records.
Refuses to know: how any of it was computed; a report can be made again from a file, on another machine.
"""
