"""`python -m ottla` is the `ottla` command, and this is how both begin."""

import sys
import warnings


def main() -> int:
    """Runs the command. Ctrl-C ends it without a traceback from its first moment on, also while it is imported."""
    # A free-threaded Python takes its lock for the compiled core; decision 18 says why that is meant to be so.
    warnings.filterwarnings("ignore", "The global interpreter lock", RuntimeWarning)
    try:
        from ottla.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # as the shell reports a program that SIGINT ended


if __name__ == "__main__":
    sys.exit(main())
