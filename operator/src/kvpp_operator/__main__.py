"""`kvpp` and `python -m kvpp_operator`."""

from kvpp_operator.cli.app import app


def main() -> None:
    app(prog_name="kvpp")


if __name__ == "__main__":
    main()
