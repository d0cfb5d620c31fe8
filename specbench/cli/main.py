"""The front door: registers the commands, and turns every error into one sentence and an exit code.

Knows: which commands there are and what each exit code means (0 ok, 1 error or failed verification, 2 usage, 3 not
comparable, 4 regression, 5 incomplete).
Refuses to know: what any command does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from specbench.cli import check, compare, doctor, explain, export, listing, run, sweep, table, train, verify
from specbench.cli.complete import bash_values
from specbench.cli.output import drop_stdout, only_json, open_standard_streams, warn
from specbench.errors import SpecbenchError

DEBUG = "SPECBENCH_DEBUG"
"""Environment variable: when set, an unexpected error also shows its traceback."""

TYPER_INTERRUPTED = 130
"""What Typer returns for Ctrl-C outside of a decoding run; not one of our exit codes."""

OUT_OF_MEMORY = "out of memory: try a smaller batch, window or model"

READER_LEFT = 141
"""128 + SIGPIPE: what a shell reports of any program whose reader left first."""

HELP = """Benchmark and reproduce speculative decoding of autoregressive image models.

Settings are given as KEY=VALUE, commas sweep: `specbench sweep method=sjd,scd window=16,32 prompts.limit=16`.
Exit codes: 0 ok, 1 error or failed verification, 2 usage, 3 not comparable, 4 regression, 5 incomplete."""

app = typer.Typer(
    name="specbench",
    help=HELP,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Any] = {
    "run": run.command,
    "sweep": sweep.command,
    "verify": verify.command,
    "compare": compare.command,
    "table": table.command,
    "check": check.command,
    "export": export.command,
    "train": train.command,
    "list": listing.command,
    "explain": explain.command,
    "doctor": doctor.command,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def _version(value: bool) -> None:
    if value:
        from specbench import __version__

        print(__version__)
        raise typer.Exit()


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def run_cli(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing but a bug can raise, and a bug says so in one sentence."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with only_json() if "--json" in arguments else nullcontext():
            code = app(args=arguments or ["--help"], prog_name="specbench", standalone_mode=False)
        sys.stdout.flush()
        if code == TYPER_INTERRUPTED:
            return _say("interrupted", 1)
        return code if isinstance(code, int) else 0
    except SpecbenchError as error:
        return _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _say("interrupted", 1)
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as error:
        # Typer and rich meet a broken pipe before we do, and make an exit of it.
        if isinstance(error.__context__, BrokenPipeError):
            return _reader_left()
        return error.code if isinstance(error.code, int) else 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _say(f"{error.strerror or error}{where}", 1)
    except MemoryError:
        return _say(OUT_OF_MEMORY, 1)
    except Exception as error:
        return _unexpected(error)


def main() -> None:
    """Entry point of the console script, which is also what a shell asks for completions."""
    open_standard_streams()
    values = bash_values(os.environ)
    if values is not None:
        print("\n".join(values))
        sys.exit(0)
    code = run_cli()
    if "--json" in sys.argv:  # what plugins print when the interpreter ends is no part of the document
        sys.stdout = sys.stderr
    sys.exit(code)


def _reader_left() -> int:
    """The reader of a pipe (`| head`) has left: nothing to say, and no success either, since not all was delivered."""
    drop_stdout()
    return READER_LEFT


def _unexpected(error: Exception) -> int:
    # Typer vendors click (or depends on it, by version), so its exceptions are known here by what they can do.
    message, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
    if callable(message) and isinstance(code, int):
        return _say(f"{message()} (see `specbench --help`)", code)
    if type(error).__name__ in ("Exit", "Abort"):
        return code if isinstance(code, int) else _say("interrupted", 1)
    if type(error).__name__ == "OutOfMemoryError":  # torch's own, which is no MemoryError
        return _say(OUT_OF_MEMORY, 1)
    if os.environ.get(DEBUG):
        raise error
    text = " ".join(str(error).split()) or "no message"
    return _say(
        f"internal error, {type(error).__name__}: {text} (set {DEBUG}=1 for the traceback, and please report it)", 1
    )


def _say(message: str, code: int) -> int:
    warn(f"specbench: {' '.join(message.split())}")
    return code


if __name__ == "__main__":
    main()
