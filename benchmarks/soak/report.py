"""x"""
from pathlib import Path
def write_report(folder: Path) -> None:
    """x"""
