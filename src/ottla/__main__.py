"""`python -m ottla` is the `ottla` command, and this is how both begin."""

import sys


def main() -> int:
    """Runs the command. Ctrl-C ends it without a traceback from its first moment on, also while it is imported."""
    try:
        from ottla.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # as the shell reports a program that SIGINT ended


if __name__ == "__main__":
    sys.exit(main())
