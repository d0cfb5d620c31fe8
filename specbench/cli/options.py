"""The options that several commands share, each written once.

Knows: names, help texts and completion of options.
Refuses to know: what they lead to.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from specbench.cli.complete import complete_override
from specbench.errors import UsageError

STORE = Path("runs")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Settings; commas sweep.", autocompletion=complete_override, show_default=False
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the store: records, pictures, report.", file_okay=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
Plots = Annotated[bool, typer.Option("--plots", help="Also draw NFE against window and the acceptance maps.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would run and what is stored already; run nothing.")]
Workers = Annotated[
    int,
    typer.Option(
        "--workers", help="Processes that decode side by side, each on one core; nothing is timed then (batch=16, say)."
    ),
]
Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", help="Python file that registers methods or targets; may be repeated.", show_default=False
    ),
]
WeightsRoot = Annotated[
    Path | None,
    typer.Option("--weights-root", help="Folder with the weights of models that are not shipped.", show_default=False),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root", help="Folder with prompt sets and references that are not shipped.", show_default=False
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def plugins(paths: list[Path] | None) -> tuple[str, ...]:
    """Check that every plugin file is there; raises ``UsageError`` naming the one that is not."""
    for path in paths or ():
        if not path.is_file():
            raise UsageError(f"plugin {path} is not a file")
    return tuple(str(path) for path in paths or ())


def roots(weights: Path | None, data: Path | None) -> None:
    """Publish the two roots to whatever loads weights or data, through the environment.

    Raises ``UsageError`` if one is given and is not a folder.
    """
    from specbench.bench import paths

    for option, variable, path in (
        ("--weights-root", paths.WEIGHTS_ROOT, weights),
        ("--data-root", paths.DATA_ROOT, data),
    ):
        if path is not None:
            if not path.is_dir():
                raise UsageError(f"{option} {path} is not a folder")
            os.environ[variable] = str(path.resolve())
