"""`normlint` and `python -m normlint`."""

from __future__ import annotations

import sys

from normlint import __version__


def main() -> None:
    """Run the command line; the version is answered before anything is imported."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"normlint {__version__}\n")
        return
    from normlint.cli import run

    run()


if __name__ == "__main__":
    main()
