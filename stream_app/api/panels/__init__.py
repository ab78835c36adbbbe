"""What the pages show: panels of keys and of values, previews at another epsilon."""
