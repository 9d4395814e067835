"""Options that several commands share."""

import argparse

METHODS = ("metis", "random")  # of clustering; as gistgnn.graphs.clusters has them, whose import would take seconds


def add_data_options(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    """Add --dataset and --data-root."""
    said = f" (default: {default})" if default else " (default: the one that the run was trained on)"
    parser.add_argument(
        "--dataset",
        default=default,
        metavar="NAME|FILE",
        help=f"a name from `gistgnn datasets`, or a .npz or .pt{said}",
    )
    root = "data" if default else None
    said = " (default: data)" if default else " (default: the run's)"
    parser.add_argument(
        "--data-root", default=root, metavar="DIR", help=f"where named data sets are, or are downloaded to{said}"
    )


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Add --device."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def count(text: str) -> int:
    """Read an integer >= 1."""
    value = int(text) if text.lstrip("+-").isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer >= 1")
    return value


def natural(text: str) -> int:
    """Read an integer >= 0."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer >= 0")
    return int(text)
