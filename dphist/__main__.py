"""``python -m dphist`` and the command ``dphist``, which needs the extra ``cli``."""

import sys


def main() -> None:
    """Run the command. Without click and rich, say in one line how to install them."""
    try:
        from dphist.cli import main as command
    except ModuleNotFoundError as missing:
        if missing.name not in ("click", "rich"):
            raise
        sys.exit(f'dphist: {missing.name} is not installed; pip install "dphist[cli]"')
    command()


if __name__ == "__main__":
    main()
