"""`normlint` and `python -m normlint`."""

from __future__ import annotations

import sys

from normlint import __version__


def main() -> None:
    """Run the command line; the version is answered before anything is imported."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"normlint {__version__}\n")
        return
    import gc

    from normlint.patience import be_patient

    be_patient()
    try:
        from normlint.cli import run

        run()
    finally:
        # What is left ends with the process: to look for garbage in it takes a fifth of a check.
        gc.freeze()


if __name__ == "__main__":
    main()
